#include "worker/data/image_source_factory.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

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
  if (!reader.has_digits()) {
    return std::make_unique<SceneSource>(scenes, MakeShapeGlyphs(options.num_classes));
  }
  PP_ASSIGN_OR_RETURN(std::unique_ptr<ImageSource> glyphs, OpenIdx(reader.digits(), options));
  return std::make_unique<SceneSource>(scenes, std::move(glyphs));
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenSynthetic(
    const config::SyntheticInputReader& reader, const ImageSourceOptions& options) {
  if (reader.has_digits() || reader.max_objects() > 1) return OpenScenes(reader, options);
  SyntheticOptions synthetic;
  synthetic.num_examples = reader.num_examples();
  synthetic.seed = reader.seed();
  synthetic.height = static_cast<int>(reader.height());
  synthetic.width = static_cast<int>(reader.width());
  synthetic.num_channels = static_cast<int>(reader.num_channels());
  synthetic.num_classes = options.num_classes;
  return std::make_unique<SyntheticSource>(synthetic);
}

absl::StatusOr<LabelMap> LoadLabelMap(const config::InputReader& reader,
                                      const ImageSourceOptions& options) {
  PosixFileSystem files;
  absl::StatusOr<LabelMap> map =
      LabelMap::Load(files, ResolveDataPath(options.data_dir, reader.label_map_path()));
  if (!map.ok()) {
    return absl::Status(
        map.status().code(),
        absl::StrCat(options.field_name, ".label_map_path: ", map.status().message()));
  }
  return map;
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenRecords(const config::InputReader& reader,
                                                         const ImageSourceOptions& options) {
  PosixFileSystem files;
  RecordSourceOptions records;
  for (const std::string& path : reader.tf_record_input_reader().input_path()) {
    records.input_paths.push_back(
        absl::StrContains(path, "://") ? path : ResolveDataPath(options.data_dir, path));
  }
  if (!reader.label_map_path().empty()) {
    PP_ASSIGN_OR_RETURN(records.label_map, LoadLabelMap(reader, options));
  }
  records.num_classes = options.num_classes;
  records.annotation = options.annotation;
  return Named(RecordSource::Open(files, std::move(records)), "tf_record_input_reader", options);
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenVoc(const config::InputReader& reader,
                                                     const ImageSourceOptions& options) {
  const config::VocInputReader& voc = reader.voc_input_reader();
  PP_ASSIGN_OR_RETURN(const LabelMap label_map, LoadLabelMap(reader, options));
  return Named(VocSource::Open(std::make_unique<PosixFileSystem>(),
                               ResolveDataPath(options.data_dir, voc.path()), voc.split(),
                               label_map, options.num_classes),
               "voc_input_reader", options);
}

}  // namespace

std::string ResolveDataPath(absl::string_view data_dir, absl::string_view path) {
  if (data_dir.empty() || absl::StartsWith(path, "/")) return std::string(path);
  return absl::StrCat(data_dir, absl::EndsWith(data_dir, "/") ? "" : "/", path);
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenImageSource(const config::InputReader& reader,
                                                             const ImageSourceOptions& options) {
  switch (reader.input_reader_case()) {
    case config::InputReader::kIdxInputReader:
      return Named(OpenIdx(reader.idx_input_reader(), options), "idx_input_reader", options);
    case config::InputReader::kImageFolderInputReader:
      return Named(ImageFolderSource::Open(
                       ResolveDataPath(options.data_dir, reader.image_folder_input_reader().path()),
                       options.num_classes),
                   "image_folder_input_reader", options);
    case config::InputReader::kTfRecordInputReader:
      return OpenRecords(reader, options);
    case config::InputReader::kVocInputReader:
      return OpenVoc(reader, options);
    case config::InputReader::kSyntheticInputReader:
      return Named(OpenSynthetic(reader.synthetic_input_reader(), options),
                   "synthetic_input_reader", options);
    default:
      LOG(FATAL) << "not a valid reader: " << reader.ShortDebugString();
  }
}

}  // namespace pushpull
