#include "worker/data/class_names.h"

#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "worker/data/image_folder_source.h"
#include "worker/data/image_source_factory.h"
#include "worker/data/label_map.h"

namespace pushpull {
namespace {

std::vector<std::string> FolderNames(const std::string& path, int num_classes) {
  const absl::StatusOr<std::vector<std::string>> names = ImageFolderSource::ListClasses(path);
  if (!names.ok()) {
    LOG(WARNING) << "the classes have no names: " << names.status().message()
                 << "; give --data_dir, or the names as --label_map";
    return {};
  }
  if (static_cast<int>(names->size()) != num_classes) {
    LOG(WARNING) << "the classes have no names: " << path << " has " << names->size()
                 << " class folders, the model has " << num_classes << " classes";
    return {};
  }
  return *names;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FindClassNames(
    FileSystem& files, const config::TrainEvalPipelineConfig& config,
    const ClassNameOptions& options) {
  std::vector<std::string> names;
  std::string path = options.label_map;
  if (config.eval_input_reader_size() > 0) {
    const config::InputReader& reader = config.eval_input_reader(0);
    if (path.empty() && !reader.label_map_path().empty()) {
      path = ResolveDataPath(options.data_dir, reader.label_map_path());
    }
    if (path.empty() && reader.has_image_folder_input_reader()) {
      return FolderNames(
          ResolveDataPath(options.data_dir, reader.image_folder_input_reader().path()),
          config.model().classifier().num_classes());
    }
  }
  if (path.empty()) return names;
  PP_ASSIGN_OR_RETURN(const LabelMap map, LabelMap::Load(files, path));
  for (int label = 0; label < map.num_classes(); ++label) names.push_back(map.name(label));
  return names;
}

}  // namespace pushpull
