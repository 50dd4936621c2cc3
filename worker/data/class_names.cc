#include "worker/data/class_names.h"

#include <algorithm>
#include <optional>
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

// Returns the class folders of the training data; empty if they are not on this machine.
std::vector<std::string> TrainFolderNames(const config::TrainEvalPipelineConfig& config,
                                          const std::string& data_dir) {
  const config::InputReader& reader = config.train_input_reader();
  if (!reader.has_image_folder_input_reader()) return {};
  return ImageFolderSource::ListClasses(
             ResolveDataPath(data_dir, reader.image_folder_input_reader().path()))
      .value_or(std::vector<std::string>());
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
    const int num_classes = config.model().classifier().num_classes();
    std::vector<std::string> names = TrainFolderNames(config, options.data_dir);
    if (static_cast<int>(names.size()) == num_classes) return names;
    return FolderNames(ResolveDataPath(options.data_dir, reader.image_folder_input_reader().path()),
                       num_classes);
  }
  return std::vector<std::string>();
}

absl::Status CheckClassFolders(const config::TrainEvalPipelineConfig& config,
                               const std::string& data_dir,
                               const std::vector<std::string>& eval_names) {
  if (config.eval_input_reader_size() == 0) return absl::OkStatus();
  const config::InputReader& reader = config.eval_input_reader(0);
  if (!reader.has_image_folder_input_reader()) return absl::OkStatus();
  const std::vector<std::string> train_names = TrainFolderNames(config, data_dir);
  if (train_names.empty()) return absl::OkStatus();
  for (size_t label = 0; label < std::max(train_names.size(), eval_names.size()); ++label) {
    const auto name = [label](const std::vector<std::string>& names) {
      return label < names.size() ? absl::StrCat("\"", names[label], "\"") : "no folder";
    };
    const std::string in_train = name(train_names);
    const std::string in_eval = name(eval_names);
    if (in_train == in_eval) continue;
    const auto path = [&data_dir](const config::InputReader& of) {
      return ResolveDataPath(data_dir, of.image_folder_input_reader().path());
    };
    return absl::InvalidArgumentError(absl::StrCat(
        "class ", label, " is ", in_train, " in ", path(config.train_input_reader()),
        ", which train_input_reader reads, but ", in_eval, " in ", path(reader),
        ", which eval_input_reader reads; give both the same class folders, even empty ones, since "
        "labels count the folders in the order of their names"));
  }
  return absl::OkStatus();
}

absl::Status CheckLabelMaps(FileSystem& files, const config::TrainEvalPipelineConfig& config,
                            const std::string& data_dir) {
  if (config.eval_input_reader_size() == 0) return absl::OkStatus();
  const std::string& in_train = config.train_input_reader().label_map_path();
  const std::string& in_eval = config.eval_input_reader(0).label_map_path();
  if (in_train.empty() || in_eval.empty() || in_train == in_eval) return absl::OkStatus();
  const absl::StatusOr<LabelMap> train = LabelMap::Load(files, ResolveDataPath(data_dir, in_train));
  const absl::StatusOr<LabelMap> eval = LabelMap::Load(files, ResolveDataPath(data_dir, in_eval));
  if (!train.ok() || !eval.ok()) return absl::OkStatus();
  const std::optional<std::string> name = train->NameWithAnotherLabel(*eval);
  if (!name.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "class \"", *name, "\" has the id ", *train->Find(*name) + 1, " in ", train->source(),
      ", which train_input_reader.label_map_path names, but ", *eval->Find(*name) + 1, " in ",
      eval->source(), ", which eval_input_reader.label_map_path names; give both the same ids"));
}

}  // namespace pushpull
