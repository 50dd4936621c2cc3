// Named float tensors of another model: what training can start from.
#ifndef PUSHPULL_COMMON_FINE_TUNE_TENSOR_SOURCE_H_
#define PUSHPULL_COMMON_FINE_TUNE_TENSOR_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "common/file_system.h"

namespace pushpull {

struct SourceTensor {
  std::string name;
  std::vector<int64_t> shape;
  // Why it cannot be read ("dtype 9 is not float32"); empty where it can.
  std::string unusable;

  int64_t num_elements() const;
};

// Immutable; not thread-safe.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // "TensorFlow checkpoint /models/ssd/model.ckpt"
  virtual std::string describe() const = 0;
  // Ascending by name.
  virtual const std::vector<SourceTensor>& tensors() const = 0;
  // Reads one of tensors(); `values` has its number of elements. DATA_LOSS names file and tensor.
  virtual absl::Status Read(const SourceTensor& tensor, absl::Span<float> values) const = 0;

  // Null when there is none of that name.
  const SourceTensor* Find(absl::string_view name) const;
};

// `path` may be a train_dir or one checkpoint's folder of ours, a .safetensors file, or the prefix
// of a TensorFlow checkpoint (<path>.index and <path>.data-00000-of-00001 ...). NOT_FOUND says what
// was looked for; DATA_LOSS: damaged.
absl::StatusOr<std::unique_ptr<TensorSource>> OpenTensorSource(FileSystem& files,
                                                               const std::string& path);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_FINE_TUNE_TENSOR_SOURCE_H_
