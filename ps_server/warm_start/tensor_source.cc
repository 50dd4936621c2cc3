#include "ps_server/warm_start/tensor_source.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_paths.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/safetensors.h"
#include "common/config/validate_config.h"
#include "common/model/model_layout.h"
#include "common/model/statistic_correction.h"
#include "ps_server/warm_start/corrected_statistics.h"
#include "ps_server/warm_start/tensor_bundle.h"

namespace pushpull {
namespace {

constexpr char kSafetensorsEnding[] = ".safetensors";

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
// spans shards. Moving statistics are corrected as evaluation and export correct them.
class CheckpointSource final : public TensorSource {
 public:
  static absl::StatusOr<std::unique_ptr<TensorSource>> Create(
      std::unique_ptr<Checkpoint> checkpoint) {
    PP_ASSIGN_OR_RETURN(Corrections corrections, CorrectionsOf(*checkpoint));
    return std::unique_ptr<TensorSource>(
        new CheckpointSource(std::move(checkpoint), std::move(corrections)));
  }

  std::string describe() const override { return absl::StrCat("checkpoint ", checkpoint_->path()); }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  absl::Status Read(const SourceTensor& tensor, absl::Span<float> values) const override {
    PP_RETURN_IF_ERROR(checkpoint_->ReadTensor(
        tensor.name, {0, static_cast<int64_t>(values.size())}, values.data()));
    const auto correction = corrections_.find(tensor.name);
    if (correction != corrections_.end()) correction->second.Apply(values);
    return absl::OkStatus();
  }
  std::optional<NetworkSpec> network() const override {
    ConfigContext context;
    context.log_warnings = false;
    const absl::StatusOr<config::TrainEvalPipelineConfig> config =
        ParseValidConfig(checkpoint_->manifest().pipeline_config, context, checkpoint_->path());
    // It is of an external model, or of another release.
    if (!config.ok()) return std::nullopt;
    return BuildNetworkSpec(config->model());
  }

 private:
  using Corrections = std::map<std::string, StatisticCorrection>;  // by the name of the variable

  CheckpointSource(std::unique_ptr<Checkpoint> checkpoint, Corrections corrections)
      : checkpoint_(std::move(checkpoint)), corrections_(std::move(corrections)) {
    for (const Checkpoint::NamedTensor& tensor : checkpoint_->tensors()) {
      tensors_.push_back({tensor.name, tensor.shape, ""});
    }
  }

  const std::unique_ptr<Checkpoint> checkpoint_;
  const Corrections corrections_;
  std::vector<SourceTensor> tensors_;
};

// Files of Keras, which hold HDF5.
constexpr absl::string_view kKerasEndings[] = {".h5", ".hdf5", ".keras"};

bool IsKerasFile(const std::string& path) {
  return std::any_of(std::begin(kKerasEndings), std::end(kKerasEndings),
                     [&path](absl::string_view ending) { return absl::EndsWith(path, ending); });
}

// Returns what is at `path`, or nothing if there is nothing. Other errors, such as those of a disk,
// do not tell.
absl::StatusOr<std::optional<FileInfo>> Look(FileSystem& files, const std::string& path) {
  absl::StatusOr<FileInfo> info = files.GetInfo(path);
  if (absl::IsNotFound(info.status())) return std::optional<FileInfo>();
  PP_RETURN_IF_ERROR(info.status());
  return std::optional<FileInfo>(*std::move(info));
}

// Opens a checkpoint of this project: `folder`, or the newest one in it. Returns null if there is
// none.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenOwnCheckpoint(FileSystem& files,
                                                              const std::string& folder) {
  if (const std::optional<uint64_t> step = ParseCheckpointName(FileNameOf(folder))) {
    PP_ASSIGN_OR_RETURN(const std::optional<FileInfo> manifest,
                        Look(files, JoinPath(folder, kManifestFile)));
    if (manifest.has_value()) return Checkpoint::Open(files, FolderOf(folder), *step);
  }
  PP_ASSIGN_OR_RETURN(const std::vector<uint64_t> steps, ListCheckpoints(files, folder));
  if (steps.empty()) return nullptr;
  return OpenNewestCheckpoint(files, folder, {});
}

// Says what to do with a file that is none of those that are read.
absl::Status OtherFileError(const std::string& path) {
  return absl::UnimplementedError(absl::StrCat(
      path, ": files of this kind are not read; expected a ", kSafetensorsEnding,
      " file, or the prefix of a TensorFlow checkpoint (", path,
      ".index does not exist). For a file of PyTorch (.pth, .pt, .bin) call "
      "safetensors.torch.save_file(torch.load(FILE, weights_only=True), "
      "\"NAME.safetensors\"). A checkpoint in one file (TensorFlow's V1 format) becomes one in V2 "
      "if tf.compat.v1.train.Saver restores it and saves it again"));
}

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
  PP_ASSIGN_OR_RETURN(const std::optional<FileInfo> found, Look(files, path));
  if (found.has_value() && found->is_directory) {
    PP_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, OpenOwnCheckpoint(files, path));
    if (checkpoint != nullptr) return CheckpointSource::Create(std::move(checkpoint));
  }
  PP_ASSIGN_OR_RETURN(const std::optional<FileInfo> index, Look(files, path + ".index"));
  if (index.has_value()) return OpenTensorBundle(files, path);
  if (found.has_value() && !found->is_directory) return OtherFileError(path);
  return absl::NotFoundError(absl::StrCat(
      path, ": no weights to start from; expected a folder with checkpoints of ours, a ",
      kSafetensorsEnding, " file, or the prefix of a TensorFlow checkpoint (", path,
      ".index does not exist)"));
}

}  // namespace pushpull
