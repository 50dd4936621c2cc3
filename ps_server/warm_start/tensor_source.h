// The named float tensors of another model, from which a warm start takes its weights.
#ifndef PUSHPULL_PS_SERVER_WARM_START_TENSOR_SOURCE_H_
#define PUSHPULL_PS_SERVER_WARM_START_TENSOR_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "common/base/file_system.h"
#include "common/model/network_spec.h"

namespace pushpull {

struct SourceTensor {
  std::string name;
  std::vector<int64_t> shape;
  // Why the tensor cannot be read ("dtype 9 is not float32"); empty if it can.
  std::string unusable;

  int64_t num_elements() const;
};

// An open source. Not thread-safe. It keeps its files open.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // Returns a name for messages, for example "TensorFlow checkpoint /models/ssd/model.ckpt".
  virtual std::string describe() const = 0;
  // Returns all tensors, ascending by name.
  virtual const std::vector<SourceTensor>& tensors() const = 0;
  // Reads one of tensors() that is not unusable; `values` has tensor.num_elements() elements.
  // DATA_LOSS: the tensor is damaged; the message names the file and the tensor.
  virtual absl::Status Read(const SourceTensor& tensor, absl::Span<float> values) const = 0;
  // Returns the network whose variables the tensors are; nullopt if the source does not tell it.
  virtual std::optional<NetworkSpec> network() const { return std::nullopt; }
  // Returns whether TensorFlow has written the source.
  virtual bool is_tensorflow() const { return false; }

  // Returns the tensor of that name, or null. Valid as long as the source.
  const SourceTensor* Find(absl::string_view name) const;
};

// Opens the weights at `path`, which may be
//   - a train_dir of this project (its newest checkpoint) or the folder of one of its checkpoints,
//   - a .safetensors file,
//   - the prefix of a TensorFlow checkpoint (<path>.index and <path>.data-00000-of-00001 ...).
// Moving statistics that training with bias_corrected_moving_statistics has left in a checkpoint of
// this project are corrected as they are read.
//
// UNIMPLEMENTED: another file, such as one of Keras (.h5, .hdf5 or .keras) or PyTorch; the message
// says how to convert it. NOT_FOUND: there is none of these; the message says what was looked for.
// DATA_LOSS: the file is damaged. Other errors: as for FileSystem::GetInfo, OpenNewestCheckpoint,
// CorrectionsOf and OpenTensorBundle.
absl::StatusOr<std::unique_ptr<TensorSource>> OpenTensorSource(FileSystem& files,
                                                               const std::string& path);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WARM_START_TENSOR_SOURCE_H_
