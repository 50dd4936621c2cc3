// Tested by tests/common/config/validate_config_test.cc.
#include "common/config/reader_checks.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

#include "common/base/passing_error.h"
#include "common/config/schema_marks.h"

namespace pushpull {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;

constexpr int kMinSide = 16;
constexpr int kMinSceneSide = 64;  // of an image with several objects
constexpr int kMaxSide = 4096;
constexpr int kMaxObjects = 100;

// Checks that the file or folder `path` exists. One that does not is a missing input, which has its
// own exit code (66). CheckSchemaMarks reports remote paths and placeholders.
void CheckExists(const std::string& field, const std::string& path, bool folder,
                 const ReaderFiles& files, FieldChecker* checker) {
  if (absl::StrContains(path, "://") || absl::StrContains(path, "PATH_TO_BE_CONFIGURED")) return;
  const bool relative = path[0] != '/';
  const std::string full =
      relative && !files.data_dir.empty() ? absl::StrCat(files.data_dir, "/", path) : path;
  struct stat info;
  const int error = ::stat(full.c_str(), &info) == 0 ? 0 : errno;
  if (error != 0 && error != ENOENT && error != ENOTDIR) {
    // The file may well exist.
    ConfigProblem problem;
    problem.field = field;
    problem.expected = folder ? "a folder that can be read" : "a file that can be read";
    problem.got = absl::StrCat("\"", full, "\": ", std::strerror(error));
    problem.may_pass = IsPassingErrno(error);
    checker->AddProblem(std::move(problem));
  } else if (error != 0) {
    checker->AddProblem({field, folder ? "an existing folder" : "an existing file",
                         absl::StrCat("\"", full, "\", which does not exist"),
                         relative
                             ? "correct the path, or say with --data_dir where relative paths begin"
                             : "correct the path",
                         /*missing_input=*/true});
  } else if (S_ISDIR(info.st_mode) != folder) {
    checker->Add(field, folder ? "a folder" : "a file",
                 absl::StrCat("\"", full, "\", which is a ", folder ? "file" : "folder"));
  }
}

// Returns whether the field is not set, or is a string without characters.
bool IsEmpty(const Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) return reflection.FieldSize(message, &field) == 0;
  if (!reflection.HasField(message, &field)) return true;
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
         reflection.GetString(message, &field).empty();
}

// Checks one field of a reader by the options (required) and (path_to).
void CheckField(const Message& reader, const FieldDescriptor& field, const std::string& name,
                const ReaderFiles& files, FieldChecker* checker) {
  std::string required = field.options().GetExtension(config::required);
  const config::PathKind kind = field.options().GetExtension(config::path_to);
  const bool folder = kind == config::EXISTING_FOLDER;
  if (kind != config::NO_PATH) required = folder ? "the path of a folder" : "the path of a file";
  if (!required.empty() && IsEmpty(reader, field)) {
    checker->Missing(name, required);
  } else if (kind != config::NO_PATH && files.must_exist) {
    CheckExists(name, reader.GetReflection()->GetString(reader, &field), folder, files, checker);
  }
}

// Checks all fields of a reader and of the readers in it.
void CheckFields(const Message& reader, const std::string& prefix, const ReaderFiles& files,
                 FieldChecker* checker) {
  for (int i = 0; i < reader.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *reader.GetDescriptor()->field(i);
    const std::string name = absl::StrCat(prefix, ".", field.name());
    CheckField(reader, field, name, files, checker);
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !IsEmpty(reader, field)) {
      CheckFields(reader.GetReflection()->GetMessage(reader, &field), name, files, checker);
    }
  }
}

void CheckSynthetic(const config::SyntheticInputReader& reader, const std::string& field,
                    const config::DetectionModel& model, FieldChecker* checker) {
  const int min_side = reader.has_digits() || reader.max_objects() > 1 ? kMinSceneSide : kMinSide;
  checker->AtLeast(field + ".num_examples", reader.num_examples(), 1);
  checker->Between(field + ".height", reader.height(), min_side, kMaxSide);
  checker->Between(field + ".width", reader.width(), min_side, kMaxSide);
  checker->Between(field + ".max_objects", reader.max_objects(), 1, kMaxObjects);
  if (reader.num_channels() != 1 && reader.num_channels() != 3) {
    checker->Add(field + ".num_channels", "1 (grey) or 3 (RGB)",
                 absl::StrCat(reader.num_channels()));
  }
  if (!reader.has_digits()) {
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

// Checks that the data give what the model learns from. Returns whether they do.
bool CheckAnnotation(const std::string& field, const FieldDescriptor& kind,
                     const config::DetectionModel& model, FieldChecker* checker) {
  const config::AnnotationKind annotation = kind.options().GetExtension(config::annotation);
  if (model.has_ssd() && annotation == config::LABELS) {
    checker->Add(field, "a reader that gives boxes", kind.name(),
                 "a detector learns from boxes, which these data do not have");
  } else if (model.has_classifier() && annotation == config::BOXES) {
    checker->Add(field, "a reader whose images have one label", kind.name(),
                 "a classifier learns from labels, and these data have boxes");
  } else {
    return true;
  }
  return false;
}

void CheckLabelMap(const std::string& field, const FieldDescriptor& kind, const std::string& path,
                   FieldChecker* checker) {
  const config::LabelMapUse use = kind.options().GetExtension(config::label_map);
  if (use == config::MAP_UNUSED && !path.empty()) {
    checker->Add(field, "none with this reader", absl::StrCat("\"", path, "\""),
                 "its classes are the label numbers or folder names of its data: remove it");
  } else if (use == config::MAP_REQUIRED && path.empty()) {
    checker->Add(field, absl::StrCat("a label map, because ", kind.name(), " is used"), "nothing",
                 "write the ids and names of the classes into a file; make_records writes one too");
  }
}

}  // namespace

void CheckReader(const config::InputReader& reader, const std::string& field,
                 const config::DetectionModel& model, const ReaderFiles& files,
                 FieldChecker* checker) {
  checker->AtLeast(field + ".sample_1_of_n_examples", reader.sample_1_of_n_examples(), 1);
  const google::protobuf::Reflection& reflection = *reader.GetReflection();
  const OneofDescriptor* const readers = reader.GetDescriptor()->FindOneofByName("input_reader");
  const FieldDescriptor* const kind = reflection.GetOneofFieldDescriptor(reader, readers);
  if (kind == nullptr) return checker->Missing(field, SupportedFields(*readers));
  if (kind->options().HasExtension(config::unsupported)) return;  // CheckSchemaMarks reports it
  if (!CheckAnnotation(field, *kind, model, checker)) return;     // it needs another reader
  CheckLabelMap(field + ".label_map_path", *kind, reader.label_map_path(), checker);
  const std::string name = absl::StrCat(field, ".", kind->name());
  CheckFields(reflection.GetMessage(reader, kind), name, files, checker);
  if (reader.has_synthetic_input_reader())
    CheckSynthetic(reader.synthetic_input_reader(), name, model, checker);
}

}  // namespace pushpull
