// Tested by tests/common/config/validate_config_test.cc.
#include "common/config/reader_checks.h"

#include <sys/stat.h>

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

constexpr int kMinSide = 16;
constexpr int kMinSceneSide = 64;  // of an image with several objects
constexpr int kMaxSide = 4096;
constexpr int kMaxObjects = 100;

// Checks that `path` is set and, if the files must exist, that it exists. `folder` says whether it
// must be a folder. A path that does not exist is a missing input, which has its own exit code
// (66). CheckSchemaMarks reports remote paths and placeholders.
void CheckPath(const std::string& field, const std::string& path, bool folder,
               const ReaderFiles& files, FieldChecker* checker) {
  if (path.empty())
    return checker->Missing(field, folder ? "the path of a folder" : "the path of a file");
  if (absl::StrContains(path, "://") || absl::StrContains(path, "PATH_TO_BE_CONFIGURED") ||
      !files.must_exist)
    return;
  const bool relative = path[0] != '/';
  const std::string full =
      relative && !files.data_dir.empty() ? absl::StrCat(files.data_dir, "/", path) : path;
  struct stat info;
  if (::stat(full.c_str(), &info) != 0) {
    checker->AddProblem({field, folder ? "an existing folder" : "an existing file",
                         absl::StrCat("\"", full, "\", which does not exist"),
                         relative
                             ? "correct the path, or say with --data_dir where relative paths begin"
                             : "correct the path",
                         true});
  } else if (S_ISDIR(info.st_mode) != folder) {
    checker->Add(field, folder ? "a folder" : "a file",
                 absl::StrCat("\"", full, "\", which is a ", folder ? "file" : "folder"));
  }
}

void CheckIdx(const config::IdxInputReader& reader, const std::string& field,
              const ReaderFiles& files, FieldChecker* checker) {
  CheckPath(field + ".images_path", reader.images_path(), false, files, checker);
  CheckPath(field + ".labels_path", reader.labels_path(), false, files, checker);
}

void CheckSynthetic(const config::SyntheticInputReader& reader, const std::string& field,
                    const config::DetectionModel& model, const ReaderFiles& files,
                    FieldChecker* checker) {
  const int min_side = reader.has_digits() || reader.max_objects() > 1 ? kMinSceneSide : kMinSide;
  checker->AtLeast(field + ".num_examples", reader.num_examples(), 1);
  checker->Between(field + ".height", reader.height(), min_side, kMaxSide);
  checker->Between(field + ".width", reader.width(), min_side, kMaxSide);
  checker->Between(field + ".max_objects", reader.max_objects(), 1, kMaxObjects);
  if (reader.num_channels() != 1 && reader.num_channels() != 3) {
    checker->Add(field + ".num_channels", "1 (grey) or 3 (RGB)",
                 absl::StrCat(reader.num_channels()));
  }
  if (reader.has_digits()) {
    CheckIdx(reader.digits(), field + ".digits", files, checker);
  } else {
    checker->Between(field + ".num_classes", reader.num_classes(), 1, kMaxSyntheticClasses);
  }
  const bool detector = model.has_ssd();
  const int64_t classes = detector ? model.ssd().num_classes() : model.classifier().num_classes();
  if (classes >= (detector ? 1 : 2) && int64_t{reader.num_classes()} != classes) {
    checker->Add(
        field + ".num_classes",
        absl::StrCat("that of model.", detector ? "ssd" : "classifier", " (", classes, ")"),
        absl::StrCat(reader.num_classes()), "make the two agree");
  }
}

void CheckVoc(const config::InputReader& reader, const std::string& field, FieldChecker* checker) {
  if (reader.voc_input_reader().path().empty())
    checker->Missing(field + ".voc_input_reader.path", "the path of a folder");
  if (reader.voc_input_reader().split().empty())
    checker->Missing(field + ".voc_input_reader.split", "the name of a list in ImageSets/Main");
  if (reader.label_map_path().empty()) {
    checker->Add(field + ".label_map_path", "a label map, because voc_input_reader is used",
                 "nothing", "make_records --format=voc writes one");
  }
}

}  // namespace

void CheckReader(const config::InputReader& reader, const std::string& field,
                 const config::DetectionModel& model, const ReaderFiles& files,
                 FieldChecker* checker) {
  const bool only_labels = reader.has_idx_input_reader() || reader.has_image_folder_input_reader();
  if (model.has_ssd() && only_labels) {
    checker->Add(field, "a reader that gives boxes",
                 reader.has_idx_input_reader() ? "idx_input_reader" : "image_folder_input_reader",
                 "a detector learns from boxes, which these data do not have");
    return;
  }
  if (model.has_classifier() && reader.has_voc_input_reader()) {
    checker->Add(field, "a reader whose images have one label", "voc_input_reader",
                 "a classifier learns from labels, and these data have boxes");
    return;
  }
  if (!reader.label_map_path().empty() && (only_labels || reader.has_synthetic_input_reader())) {
    checker->Add(field + ".label_map_path", "none with this reader",
                 absl::StrCat("\"", reader.label_map_path(), "\""),
                 "its classes are the label numbers or folder names of its data: remove it");
  }
  switch (reader.input_reader_case()) {
    case config::InputReader::kIdxInputReader:
      CheckIdx(reader.idx_input_reader(), field + ".idx_input_reader", files, checker);
      break;
    case config::InputReader::kImageFolderInputReader:
      CheckPath(field + ".image_folder_input_reader.path",
                reader.image_folder_input_reader().path(), true, files, checker);
      break;
    case config::InputReader::kSyntheticInputReader:
      CheckSynthetic(reader.synthetic_input_reader(), field + ".synthetic_input_reader", model,
                     files, checker);
      break;
    case config::InputReader::kVocInputReader:
      CheckVoc(reader, field, checker);
      break;
    case config::InputReader::kTfRecordInputReader:
      if (reader.tf_record_input_reader().input_path().empty()) {
        checker->Missing(field + ".tf_record_input_reader.input_path", "at least one path");
      }
      break;
    case config::InputReader::INPUT_READER_NOT_SET:
      checker->Missing(field,
                       "tf_record_input_reader, voc_input_reader, idx_input_reader, "
                       "image_folder_input_reader or synthetic_input_reader");
      break;
    default:  // CheckSchemaMarks reports external readers
      break;
  }
}

}  // namespace pushpull
