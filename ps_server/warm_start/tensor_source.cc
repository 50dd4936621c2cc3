#include "ps_server/warm_start/tensor_source.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_paths.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/safetensors.h"
#include "ps_server/warm_start/tensor_bundle.h"

namespace pushpull {
namespace {

constexpr char kSafetensorsEnding[] = ".safetensors";
constexpr char kManifest[] = "MANIFEST.json";

class SafetensorsSource final : public TensorSource {
 public:
  explicit SafetensorsSource(std::string path) : path_(std::move(path)) {}

  absl::Status Open(FileSystem& files) {
    PP_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, files.OpenForRead(path_));
    PP_ASSIGN_OR_RETURN(reader_, SafetensorsReader::Open(std::move(file), path_));
    // The header's tensors are already sorted by name.
    for (const SafetensorsTensor& tensor : reader_->header().tensors) {
      SourceTensor entry;
      entry.name = tensor.name;
      entry.shape = tensor.shape;
      if (tensor.dtype != "F32")
        entry.unusable = absl::StrCat("dtype ", tensor.dtype, " is not F32");
      tensors_.push_back(std::move(entry));
    }
    return absl::OkStatus();
  }

  std::string describe() const override { return path_; }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }

  absl::Status Read(const SourceTensor& tensor, absl::Span<float> values) const override {
    const SafetensorsTensor* const found = reader_->header().Find(tensor.name);
    if (found == nullptr) {
      return absl::InternalError(absl::StrCat(tensor.name, " is not of ", path_));
    }
    return reader_->Read(*found, 0, values.data(), found->size_bytes());
  }

 private:
  const std::string path_;
  std::unique_ptr<SafetensorsReader> reader_;
  std::vector<SourceTensor> tensors_;
};

// Reads a checkpoint of this project. Checkpoint verifies it and joins the parts of a tensor that
// spans shards.
class CheckpointSource final : public TensorSource {
 public:
  explicit CheckpointSource(std::unique_ptr<Checkpoint> checkpoint)
      : checkpoint_(std::move(checkpoint)) {
    for (const Checkpoint::NamedTensor& tensor : checkpoint_->tensors()) {
      tensors_.push_back({tensor.name, tensor.shape, ""});
    }
  }

  std::string describe() const override { return absl::StrCat("checkpoint ", checkpoint_->path()); }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  absl::Status Read(const SourceTensor& tensor, absl::Span<float> values) const override {
    return checkpoint_->ReadTensor(tensor.name, {0, static_cast<int64_t>(values.size())},
                                   values.data());
  }

 private:
  const std::unique_ptr<Checkpoint> checkpoint_;
  std::vector<SourceTensor> tensors_;
};

// Files of Keras, which hold HDF5.
constexpr absl::string_view kKerasEndings[] = {".h5", ".hdf5", ".keras"};

bool IsKerasFile(const std::string& path) {
  return std::any_of(std::begin(kKerasEndings), std::end(kKerasEndings),
                     [&path](absl::string_view ending) { return absl::EndsWith(path, ending); });
}

bool Exists(FileSystem& files, const std::string& path) { return files.GetInfo(path).ok(); }

}  // namespace

int64_t SourceTensor::num_elements() const {
  int64_t elements = 1;
  for (const int64_t dimension : shape) elements *= dimension;
  return elements;
}

const SourceTensor* TensorSource::Find(absl::string_view name) const {
  const std::vector<SourceTensor>& all = tensors();
  const auto found = std::lower_bound(
      all.begin(), all.end(), name,
      [](const SourceTensor& tensor, absl::string_view wanted) { return tensor.name < wanted; });
  return found != all.end() && found->name == name ? &*found : nullptr;
}

absl::StatusOr<std::unique_ptr<TensorSource>> OpenTensorSource(FileSystem& files,
                                                               const std::string& given) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (absl::EndsWith(path, kSafetensorsEnding)) {
    auto source = std::make_unique<SafetensorsSource>(path);
    PP_RETURN_IF_ERROR(source->Open(files));
    return source;
  }
  if (IsKerasFile(path)) {
    return absl::UnimplementedError(absl::StrCat(
        path,
        ": Keras's HDF5 files are not read; expected a checkpoint of TensorFlow: load the "
        "file in Keras, call tf.train.Checkpoint(model=model).write(PREFIX), and give PREFIX "
        "instead"));
  }
  const std::optional<uint64_t> step = ParseCheckpointName(FileNameOf(path));
  if (step.has_value() && Exists(files, JoinPath(path, kManifest))) {
    PP_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint,
                        Checkpoint::Open(files, FolderOf(path), *step));
    return std::make_unique<CheckpointSource>(std::move(checkpoint));
  }
  const absl::StatusOr<std::vector<uint64_t>> steps = ListCheckpoints(files, path);
  if (steps.ok() && !steps->empty()) {
    PP_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint,
                        OpenNewestCheckpoint(files, path, {}));
    return std::make_unique<CheckpointSource>(std::move(checkpoint));
  }
  if (Exists(files, path + ".index")) return OpenTensorBundle(files, path);
  return absl::NotFoundError(absl::StrCat(
      path, ": no weights to start from; expected a folder with checkpoints of ours, a ",
      kSafetensorsEnding, " file, or the prefix of a TensorFlow checkpoint (", path,
      ".index does not exist)"));
}

}  // namespace pushpull
