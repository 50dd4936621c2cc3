// TensorFlow checkpoints of format V2: <prefix>.index and <prefix>.data-?????-of-?????.
#ifndef PUSHPULL_COMMON_FINE_TUNE_TENSOR_BUNDLE_H_
#define PUSHPULL_COMMON_FINE_TUNE_TENSOR_BUNDLE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/fine_tune/tensor_source.h"

namespace pushpull {

// Reads the index; every tensor's CRC32C is checked when it is read. Tensors that are not float32
// or that are partitioned are listed as unusable. NOT_FOUND: no such file; DATA_LOSS: damaged.
absl::StatusOr<std::unique_ptr<TensorSource>> OpenTensorBundle(FileSystem& files,
                                                               const std::string& prefix);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_FINE_TUNE_TENSOR_BUNDLE_H_
