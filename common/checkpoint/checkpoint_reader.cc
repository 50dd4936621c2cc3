// Tested by tests/common/checkpoint/checkpoint_test.cc.
// Tested by tests/common/checkpoint/checkpoint_faults_test.cc.
#include "common/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "common/base/crc32c.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_paths.h"
#include "common/checkpoint/checkpoint_writer.h"

namespace pushpull {
namespace {

constexpr int64_t kBlockBytes = int64_t{1} << 20;
constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;

// CANCELLED: the process has been told to end.
absl::Status CheckNotStopped(const StopRequested& stopped, const std::string& path) {
  if (!stopped()) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("stopped while ", path, " was being read"));
}

absl::StatusOr<std::string> DigestOfFile(const ReadableFile& file, const std::string& path,
                                         const StopRequested& stopped) {
  Sha256 digest;
  std::string block;
  for (int64_t offset = 0; offset < file.size_bytes(); offset += block.size()) {
    PP_RETURN_IF_ERROR(CheckNotStopped(stopped, path));
    block.resize(std::min(kBlockBytes, file.size_bytes() - offset));
    PP_RETURN_IF_ERROR(file.ReadAt(offset, block.data(), block.size()));
    digest.Update(block.data(), block.size());
  }
  return digest.FinishHex();
}

absl::StatusOr<uint32_t> ChecksumOfTensor(const SafetensorsReader& file,
                                          const SafetensorsTensor& tensor,
                                          const StopRequested& stopped) {
  uint32_t crc = 0;
  std::string block;
  for (int64_t offset = 0; offset < tensor.size_bytes(); offset += block.size()) {
    PP_RETURN_IF_ERROR(CheckNotStopped(stopped, file.path()));
    block.resize(std::min(kBlockBytes, tensor.size_bytes() - offset));
    PP_RETURN_IF_ERROR(file.Read(tensor, offset, block.data(), block.size()));
    crc = ExtendCrc32c(crc, block.data(), block.size());
  }
  return crc;
}

// The value of "part/<tensor>" in a shard file's metadata (see checkpoint_writer.h).
struct PartPlace {
  int64_t offset = 0;
  std::vector<int64_t> shape;
};

std::optional<PartPlace> ParsePart(const std::string& text) {
  const nlohmann::json body = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object() || !body.contains("offset") || !body["offset"].is_number_unsigned() ||
      !body.contains("shape") || !body["shape"].is_array()) {
    return std::nullopt;
  }
  PartPlace place;
  place.offset = body["offset"].get<int64_t>();
  if (place.offset < 0) return std::nullopt;  // the number was 2^63 or more
  for (const nlohmann::json& dimension : body["shape"]) {
    if (!dimension.is_number_unsigned()) return std::nullopt;
    place.shape.push_back(dimension.get<int64_t>());
  }
  return place;
}

// Turns every error about a file (missing, too short, not a regular file) into DATA_LOSS, because
// it means that the checkpoint is damaged. Returns read failures unchanged.
absl::Status AsDataLoss(const absl::Status& status) {
  if (status.ok() || IsReadFailure(status)) return status;
  return absl::DataLossError(status.message());
}

std::string ManifestPath(const std::string& directory, uint64_t step) {
  return JoinPath(JoinPath(directory, CheckpointName(step)), kManifestFile);
}

absl::StatusOr<std::string> ReadManifestText(FileSystem& files, const std::string& directory,
                                             uint64_t step) {
  const std::string path = ManifestPath(directory, step);
  const absl::StatusOr<std::unique_ptr<ReadableFile>> file = files.OpenForRead(path);
  if (absl::IsNotFound(file.status())) {
    // A folder without a manifest is a damaged checkpoint (DATA_LOSS). Without the folder there is
    // no checkpoint (NOT_FOUND).
    const absl::StatusOr<FileInfo> folder =
        files.GetInfo(JoinPath(directory, CheckpointName(step)));
    if (IsReadFailure(folder.status())) return folder.status();
    return folder.ok() ? AsDataLoss(file.status()) : file.status();
  }
  PP_RETURN_IF_ERROR(AsDataLoss(file.status()));
  if ((*file)->size_bytes() > kMaxManifestBytes) {
    return absl::DataLossError(absl::StrCat(path, " has ", (*file)->size_bytes(),
                                            " bytes, expected at most ", kMaxManifestBytes));
  }
  std::string text((*file)->size_bytes(), '\0');
  PP_RETURN_IF_ERROR(AsDataLoss((*file)->ReadAt(0, text.data(), text.size())));
  return text;
}

absl::Status CheckStep(const CheckpointManifest& manifest, const std::string& path, uint64_t step) {
  if (manifest.step == step) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path, " holds the manifest of step ", manifest.step, ", expected ", step));
}

}  // namespace

bool IsReadFailure(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    // These say something about the contents or the names.
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
      return false;
    default:
      return true;
  }
}

absl::StatusOr<CheckpointManifest> ReadManifest(FileSystem& files, const std::string& directory,
                                                uint64_t step) {
  PP_ASSIGN_OR_RETURN(const std::string text, ReadManifestText(files, directory, step));
  const std::string path = ManifestPath(directory, step);
  PP_ASSIGN_OR_RETURN(CheckpointManifest manifest, ParseManifest(text, path));
  PP_RETURN_IF_ERROR(CheckStep(manifest, path, step));
  return manifest;
}

Checkpoint::Checkpoint(std::string path, CheckpointManifest manifest, StopRequested stopped)
    : path_(std::move(path)), manifest_(std::move(manifest)), stopped_(std::move(stopped)) {}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(FileSystem& files,
                                                             const std::string& directory,
                                                             uint64_t step,
                                                             const StopRequested& stopped) {
  const std::string path = JoinPath(directory, CheckpointName(step));
  const auto open = [&](const std::string& text) -> absl::StatusOr<std::unique_ptr<Checkpoint>> {
    PP_ASSIGN_OR_RETURN(CheckpointManifest manifest,
                        ParseManifest(text, ManifestPath(directory, step)));
    PP_RETURN_IF_ERROR(CheckStep(manifest, path, step));
    std::unique_ptr<Checkpoint> checkpoint(new Checkpoint(path, std::move(manifest), stopped));
    std::vector<std::unique_ptr<ReadableFile>> opened;
    for (const CheckpointFile& file : checkpoint->manifest_.files) {
      absl::StatusOr<std::unique_ptr<ReadableFile>> shard =
          files.OpenForRead(JoinPath(path, file.name));
      PP_RETURN_IF_ERROR(AsDataLoss(shard.status()));
      opened.push_back(*std::move(shard));
    }
    for (size_t i = 0; i < opened.size(); ++i) {
      PP_RETURN_IF_ERROR(
          AsDataLoss(checkpoint->AddFile(std::move(opened[i]), checkpoint->manifest_.files[i])));
    }
    PP_RETURN_IF_ERROR(checkpoint->CheckCoverage());
    return checkpoint;
  };

  PP_ASSIGN_OR_RETURN(std::string text, ReadManifestText(files, directory, step));
  while (true) {
    absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = open(text);
    if (checkpoint.ok()) return checkpoint;
    // The checkpoint may have been deleted or replaced between two opens, so that the files belong
    // to two checkpoints. Unless the manifest has changed, the error is real.
    PP_ASSIGN_OR_RETURN(std::string again, ReadManifestText(files, directory, step));
    if (again == text) return checkpoint.status();
    text = std::move(again);
  }
}

absl::Status Checkpoint::AddFile(std::unique_ptr<ReadableFile> file,
                                 const CheckpointFile& expected) {
  const std::string path = JoinPath(path_, expected.name);
  const auto bad = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(path, ": ", what));
  };
  if (file->size_bytes() != expected.size_bytes) {
    return bad(absl::StrCat(file->size_bytes(), " bytes, expected ", expected.size_bytes));
  }
  PP_ASSIGN_OR_RETURN(const std::string digest, DigestOfFile(*file, path, stopped_));
  if (digest != expected.sha256) {
    return bad(absl::StrCat("SHA-256 is ", digest, ", expected ", expected.sha256));
  }
  PP_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsReader> reader,
                      SafetensorsReader::Open(std::move(file), path));
  const SafetensorsHeader& header = reader->header();
  if (header.tensors.size() != expected.tensors.size()) {
    return bad(absl::StrCat(header.tensors.size(), " tensors, the manifest lists ",
                            expected.tensors.size()));
  }
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const SafetensorsTensor& tensor = header.tensors[i];
    if (tensor.name != expected.tensors[i].name || tensor.dtype != "F32") {
      return bad(absl::StrCat("tensor ", tensor.name, " (", tensor.dtype, "), the manifest lists ",
                              expected.tensors[i].name, " (F32)"));
    }
    PP_ASSIGN_OR_RETURN(const uint32_t crc, ChecksumOfTensor(*reader, tensor, stopped_));
    if (crc != expected.tensors[i].crc32c) {
      return bad(absl::StrFormat("CRC32C of %s is %08x, expected %08x", tensor.name, crc,
                                 expected.tensors[i].crc32c));
    }
    Part part;
    part.file = reader.get();
    part.tensor = &tensor;
    part.crc32c = crc;
    const int64_t elements = tensor.size_bytes() / static_cast<int64_t>(sizeof(float));
    if (const auto it = header.metadata.find(PartKey(tensor.name)); it != header.metadata.end()) {
      const std::optional<PartPlace> place = ParsePart(it->second);
      if (!place.has_value() || place->offset > std::numeric_limits<int64_t>::max() - elements) {
        return bad(absl::StrCat("cannot understand ", it->first, ": ", it->second));
      }
      part.begin = place->offset;
      part.shape = place->shape;
    } else {
      part.shape = tensor.shape;
    }
    part.end = part.begin + elements;
    tensors_[tensor.name].push_back(std::move(part));
  }
  readers_.push_back(std::move(reader));
  return absl::OkStatus();
}

absl::Status Checkpoint::CheckCoverage() {
  size_t expected = 0;
  const auto check = [&](const VariableSpec& variable, const std::string& name) {
    ++expected;
    const auto bad = [&](absl::string_view what) {
      return absl::DataLossError(absl::StrCat(path_, ": tensor ", name, " ", what));
    };
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return bad("is missing");
    int64_t elements = 1;
    for (const int64_t dimension : variable.shape) elements *= dimension;
    std::vector<Part>& parts = it->second;
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.begin < b.begin; });
    int64_t covered = 0;
    for (const Part& part : parts) {
      if (part.shape != variable.shape) {
        return bad(absl::StrCat("has shape ", ShapeToString(part.shape), ", expected ",
                                ShapeToString(variable.shape)));
      }
      if (part.begin != covered) {
        return bad(
            absl::StrCat("has a part that begins at element ", part.begin, ", expected ", covered));
      }
      covered = part.end;
    }
    if (covered != elements) {
      return bad(absl::StrCat("has ", covered, " elements, expected ", elements));
    }
    return absl::OkStatus();
  };
  // Create also rejects shapes that overflow, so the products in `check` are safe.
  const absl::StatusOr<VariableLayout> layout = VariableLayout::Create(manifest_.variables);
  if (!layout.ok()) {
    return absl::DataLossError(absl::StrCat(path_, ": ", layout.status().message()));
  }
  for (const VariableSpec& variable : manifest_.variables) {
    PP_RETURN_IF_ERROR(check(variable, variable.name));
    if (variable.kind != VariableKind::kTrainable) continue;
    for (const std::string& slot : manifest_.slot_names) {
      PP_RETURN_IF_ERROR(check(variable, absl::StrCat(variable.name, "/", slot)));
    }
    if (manifest_.has_ema) {
      PP_RETURN_IF_ERROR(check(variable, absl::StrCat(variable.name, "/", kEmaSuffix)));
    }
  }
  if (expected != tensors_.size()) {
    return absl::DataLossError(absl::StrCat(path_, ": ", tensors_.size(), " tensors, expected ",
                                            expected, " for its variables, slots and EMA"));
  }
  return absl::OkStatus();
}

std::vector<Checkpoint::NamedTensor> Checkpoint::tensors() const {
  std::vector<NamedTensor> result;
  for (const auto& [name, parts] : tensors_) result.push_back({name, parts.front().shape});
  std::sort(result.begin(), result.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  return result;
}

absl::Status Checkpoint::ReadTensor(const std::string& name, ElementRange range,
                                    float* destination) const {
  constexpr int64_t kElementBytes = sizeof(float);
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    return absl::NotFoundError(absl::StrCat(path_, ": there is no tensor ", name));
  }
  std::vector<float> whole;
  for (const Part& part : it->second) {
    const int64_t begin = std::max(range.begin, part.begin);
    const int64_t end = std::min(range.end, part.end);
    if (begin >= end) continue;
    PP_RETURN_IF_ERROR(CheckNotStopped(stopped_, part.file->path()));
    // The checksum covers the whole part, so read all of it even if `range` needs less.
    const bool direct = begin == part.begin && end == part.end;
    float* target = destination + (begin - range.begin);
    if (!direct) {
      whole.resize(part.end - part.begin);
      target = whole.data();
    }
    PP_RETURN_IF_ERROR(part.file->Read(*part.tensor, 0, target, part.tensor->size_bytes()));
    if (Crc32c(target, part.tensor->size_bytes()) != part.crc32c) {
      return absl::DataLossError(absl::StrCat(part.file->path(), ": tensor ", name,
                                              " changed since the checkpoint was opened"));
    }
    if (!direct) {
      std::memcpy(destination + (begin - range.begin), whole.data() + (begin - part.begin),
                  (end - begin) * kElementBytes);
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::ReadVector(const VariableLayout& layout, absl::string_view suffix,
                                    ElementRange range, float* destination,
                                    WithoutSuffix without) const {
  PP_RETURN_IF_ERROR(CheckLayout(manifest_, layout));
  std::fill(destination, destination + range.size(), 0.0f);
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    const VariableSpec& variable = layout.variables()[i];
    const int64_t start = layout.offset(i);
    const ElementRange part = {std::max(range.begin, start),
                               std::min(range.end, start + layout.num_elements(i))};
    if (part.begin >= part.end) continue;
    std::string name = variable.name;
    if (!suffix.empty()) {
      if (variable.kind == VariableKind::kTrainable) {
        absl::StrAppend(&name, "/", suffix);
      } else if (without == WithoutSuffix::kZero) {
        continue;
      }
    }
    PP_RETURN_IF_ERROR(ReadTensor(name, {part.begin - start, part.end - start},
                                  destination + (part.begin - range.begin)));
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::ReadWeights(const VariableLayout& layout, ElementRange range,
                                     float* destination) const {
  return ReadVector(layout, "", range, destination, WithoutSuffix::kValue);
}

absl::Status Checkpoint::ReadSlot(const VariableLayout& layout, absl::string_view slot,
                                  ElementRange range, float* destination) const {
  if (std::find(manifest_.slot_names.begin(), manifest_.slot_names.end(), slot) ==
      manifest_.slot_names.end()) {
    return absl::NotFoundError(absl::StrCat(
        path_, " has no optimizer slot ", slot, "; it has: ",
        manifest_.slot_names.empty() ? "none" : absl::StrJoin(manifest_.slot_names, ", ")));
  }
  return ReadVector(layout, slot, range, destination, WithoutSuffix::kZero);
}

absl::Status Checkpoint::ReadEma(const VariableLayout& layout, ElementRange range,
                                 float* destination) const {
  if (!manifest_.has_ema) {
    return absl::NotFoundError(absl::StrCat(path_, " has no moving averages (<variable>/",
                                            kEmaSuffix,
                                            "): it was trained with use_moving_average: false"));
  }
  return ReadVector(layout, kEmaSuffix, range, destination, WithoutSuffix::kValue);
}

}  // namespace pushpull
