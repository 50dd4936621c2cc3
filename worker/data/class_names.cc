#include "worker/data/class_names.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "worker/data/image_folder_source.h"
#include "worker/data/image_source_factory.h"
#include "worker/data/label_map.h"

namespace pushpull {
namespace {

std::vector<std::string> NoNames(absl::string_view reason) {
  LOG(WARNING) << "the classes have no names: " << reason
               << "; give --data_dir, or the names as --label_map";
  return {};
}

std::vector<std::string> FolderNames(const std::string& path, int num_classes) {
  const absl::StatusOr<std::vector<std::string>> names = ImageFolderSource::ListClasses(path);
  if (!names.ok()) return NoNames(names.status().message());
  if (static_cast<int>(names->size()) != num_classes) {
    return NoNames(absl::StrCat(path, " has ", names->size(), " class folders, the model has ",
                                num_classes, " classes"));
  }
  return *names;
}

absl::StatusOr<std::vector<std::string>> LabelMapNames(FileSystem& files, const std::string& path) {
  PP_ASSIGN_OR_RETURN(const LabelMap map, LabelMap::Load(files, path));
  std::vector<std::string> names;
  for (int label = 0; label < map.num_classes(); ++label) names.push_back(map.name(label));
  return names;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FindClassNames(
    FileSystem& files, const config::TrainEvalPipelineConfig& config,
    const ClassNameOptions& options) {
  if (!options.label_map.empty()) return LabelMapNames(files, options.label_map);
  if (config.eval_input_reader_size() == 0) return std::vector<std::string>();
  const config::InputReader& reader = config.eval_input_reader(0);
  if (!reader.label_map_path().empty()) {
    absl::StatusOr<std::vector<std::string>> names =
        LabelMapNames(files, ResolveDataPath(options.data_dir, reader.label_map_path()));
    return names.ok() ? *std::move(names) : NoNames(names.status().message());
  }
  if (reader.has_image_folder_input_reader()) {
    return FolderNames(ResolveDataPath(options.data_dir, reader.image_folder_input_reader().path()),
                       config.model().classifier().num_classes());
  }
  return std::vector<std::string>();
}

}  // namespace pushpull
