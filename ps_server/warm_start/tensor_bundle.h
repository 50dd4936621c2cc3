// Reads TensorFlow checkpoints of format V2: <prefix>.index and <prefix>.data-?????-of-?????.
#ifndef PUSHPULL_PS_SERVER_WARM_START_TENSOR_BUNDLE_H_
#define PUSHPULL_PS_SERVER_WARM_START_TENSOR_BUNDLE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "ps_server/warm_start/tensor_source.h"

namespace pushpull {

// Opens all files and reads the index. The tensors of a checkpoint that tf.train.Checkpoint of
// TensorFlow 2 has written have the names of their variables (object_graph.h). A tensor's CRC32C is
// verified when the tensor is read. Tensors that are not float32 or that are partitioned are listed
// as unusable. NOT_FOUND: a file is missing. DATA_LOSS: the index is damaged or does not fit the
// data files. UNIMPLEMENTED: the checkpoint is big-endian or its index is compressed.
absl::StatusOr<std::unique_ptr<TensorSource>> OpenTensorBundle(FileSystem& files,
                                                               const std::string& prefix);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WARM_START_TENSOR_BUNDLE_H_
