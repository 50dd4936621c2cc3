#include "worker/data/image_source_factory.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/file_system.h"
#include "common/base/status_macros.h"
#include "worker/data/idx_source.h"
#include "worker/data/image_folder_source.h"
#include "worker/data/label_map.h"
#include "worker/data/record_source.h"
#include "worker/data/scene_source.h"
#include "worker/data/synthetic_source.h"
#include "worker/data/voc_source.h"

namespace pushpull {
namespace {

absl::Status NotSet(const ImageSourceOptions& options, absl::string_view field) {
  return absl::InvalidArgumentError(absl::StrCat(options.field_name, ".", field, " is not set"));
}

// Adds the name of the reader in the config to an error.
template <typename Source>
absl::StatusOr<std::unique_ptr<ImageSource>> Named(absl::StatusOr<std::unique_ptr<Source>> source,
                                                   absl::string_view reader,
                                                   const ImageSourceOptions& options) {
  if (source.ok()) return *std::move(source);
  return absl::Status(source.status().code(), absl::StrCat(options.field_name, ".", reader, ": ",
                                                           source.status().message()));
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenIdx(const config::IdxInputReader& reader,
                                                     const ImageSourceOptions& options) {
  return IdxSource::Open(ResolveDataPath(options.data_dir, reader.images_path()),
                         ResolveDataPath(options.data_dir, reader.labels_path()),
                         options.num_classes);
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenScenes(const config::SyntheticInputReader& reader,
                                                        const ImageSourceOptions& options) {
  SceneOptions scenes;
  scenes.num_examples = reader.num_examples();
  scenes.seed = reader.seed();
  scenes.height = static_cast<int>(reader.height());
  scenes.width = static_cast<int>(reader.width());
  scenes.num_channels = static_cast<int>(reader.num_channels());
  scenes.max_objects = static_cast<int>(reader.max_objects());
  PP_ASSIGN_OR_RETURN(std::unique_ptr<ImageSource> glyphs,
                      reader.has_digits() ? OpenIdx(reader.digits(), options)
                                          : MakeShapeGlyphs(options.num_classes));
  return SceneSource::Create(scenes, std::move(glyphs));
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenSynthetic(
    const config::SyntheticInputReader& reader, const ImageSourceOptions& options) {
  if (reader.num_classes() != options.num_classes) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_classes is ", reader.num_classes(),
                     ", the model has num_classes: ", options.num_classes));
  }
  if (reader.has_digits() || reader.max_objects() > 1) return OpenScenes(reader, options);
  SyntheticOptions synthetic;
  synthetic.num_examples = reader.num_examples();
  synthetic.seed = reader.seed();
  synthetic.height = static_cast<int>(reader.height());
  synthetic.width = static_cast<int>(reader.width());
  synthetic.num_channels = static_cast<int>(reader.num_channels());
  synthetic.num_classes = static_cast<int>(reader.num_classes());
  return SyntheticSource::Create(synthetic);
}

// For readers whose classes are the numbers, folders or shapes of their data.
absl::Status RefuseLabelMap(const config::InputReader& reader, const ImageSourceOptions& options) {
  if (reader.label_map_path().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      options.field_name,
      ".label_map_path is for tf_record_input_reader and voc_input_reader; this reader's classes "
      "are the label numbers or folder names of its data. Remove it"));
}

// For readers whose images have one label and no boxes.
absl::Status RefuseBoxes(const ImageSourceOptions& options) {
  if (options.annotation != Annotation::kBoxes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(options.field_name,
                   ": this reader gives images with one label and no boxes; a detector needs "
                   "tf_record_input_reader or voc_input_reader"));
}

absl::StatusOr<std::optional<LabelMap>> LoadLabelMap(const config::InputReader& reader,
                                                     const ImageSourceOptions& options) {
  if (reader.label_map_path().empty()) return std::optional<LabelMap>();
  PosixFileSystem files;
  absl::StatusOr<LabelMap> map =
      LabelMap::Load(files, ResolveDataPath(options.data_dir, reader.label_map_path()));
  if (!map.ok()) {
    return absl::Status(
        map.status().code(),
        absl::StrCat(options.field_name, ".label_map_path: ", map.status().message()));
  }
  return std::optional<LabelMap>(*std::move(map));
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenRecords(const config::InputReader& reader,
                                                         const ImageSourceOptions& options) {
  PosixFileSystem files;
  RecordSourceOptions records;
  for (const std::string& path : reader.tf_record_input_reader().input_path()) {
    records.input_paths.push_back(
        absl::StrContains(path, "://") ? path : ResolveDataPath(options.data_dir, path));
  }
  PP_ASSIGN_OR_RETURN(records.label_map, LoadLabelMap(reader, options));
  records.num_classes = options.num_classes;
  records.annotation = options.annotation;
  return Named(RecordSource::Open(files, std::move(records)), "tf_record_input_reader", options);
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenVoc(const config::InputReader& reader,
                                                     const ImageSourceOptions& options) {
  const config::VocInputReader& voc = reader.voc_input_reader();
  if (voc.path().empty()) return NotSet(options, "voc_input_reader.path");
  if (voc.split().empty()) return NotSet(options, "voc_input_reader.split");
  if (options.annotation == Annotation::kImageLabel) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.field_name,
                     ".voc_input_reader gives boxes; a classifier needs a reader whose "
                     "images have one label"));
  }
  PP_ASSIGN_OR_RETURN(const std::optional<LabelMap> label_map, LoadLabelMap(reader, options));
  if (!label_map) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.field_name,
                     ".label_map_path is not set: voc_input_reader needs the ids of its classes "
                     "(make_records --format=voc writes a label map)"));
  }
  return Named(VocSource::Open(std::make_unique<PosixFileSystem>(),
                               ResolveDataPath(options.data_dir, voc.path()), voc.split(),
                               *label_map, options.num_classes),
               "voc_input_reader", options);
}

}  // namespace

std::string ResolveDataPath(absl::string_view data_dir, absl::string_view path) {
  if (data_dir.empty() || absl::StartsWith(path, "/")) return std::string(path);
  return absl::StrCat(data_dir, absl::EndsWith(data_dir, "/") ? "" : "/", path);
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenImageSource(const config::InputReader& reader,
                                                             const ImageSourceOptions& options) {
  if (options.num_classes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model's num_classes is ", options.num_classes, ", expected at least 1"));
  }
  switch (reader.input_reader_case()) {
    case config::InputReader::kIdxInputReader: {
      PP_RETURN_IF_ERROR(RefuseLabelMap(reader, options));
      PP_RETURN_IF_ERROR(RefuseBoxes(options));
      const config::IdxInputReader& idx = reader.idx_input_reader();
      if (idx.images_path().empty()) return NotSet(options, "idx_input_reader.images_path");
      if (idx.labels_path().empty()) return NotSet(options, "idx_input_reader.labels_path");
      return Named(OpenIdx(idx, options), "idx_input_reader", options);
    }
    case config::InputReader::kImageFolderInputReader: {
      PP_RETURN_IF_ERROR(RefuseLabelMap(reader, options));
      PP_RETURN_IF_ERROR(RefuseBoxes(options));
      const config::ImageFolderInputReader& folder = reader.image_folder_input_reader();
      if (folder.path().empty()) return NotSet(options, "image_folder_input_reader.path");
      return Named(ImageFolderSource::Open(ResolveDataPath(options.data_dir, folder.path()),
                                           options.num_classes),
                   "image_folder_input_reader", options);
    }
    case config::InputReader::kTfRecordInputReader:
      return OpenRecords(reader, options);
    case config::InputReader::kVocInputReader:
      return OpenVoc(reader, options);
    case config::InputReader::kSyntheticInputReader:
      PP_RETURN_IF_ERROR(RefuseLabelMap(reader, options));
      return Named(OpenSynthetic(reader.synthetic_input_reader(), options),
                   "synthetic_input_reader", options);
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          options.field_name,
          ": no reader that gives labelled images; set tf_record_input_reader, voc_input_reader, "
          "idx_input_reader, image_folder_input_reader or synthetic_input_reader"));
  }
}

}  // namespace pushpull
