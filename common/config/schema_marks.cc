#include "common/config/schema_marks.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"

#include "common/config/set_values.h"
#include "protos/pipeline.pb.h"

namespace pushpull {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class MarkChecks {
 public:
  MarkChecks(FieldChecker* checker, std::vector<std::string>* warnings)
      : checker_(checker), warnings_(warnings) {}

  void Visit(const Message& message) {
    ForEachSetValue(
        message,
        [this](const Message& owner, const FieldDescriptor& field, const std::string& path) {
          return IsUsed(owner, field, path);
        },
        [this](const SetValue& value) { VisitValue(value); });
  }

 private:
  // Reports a field that is not supported or has no effect. Returns whether it is neither.
  bool IsUsed(const Message& message, const FieldDescriptor& field, const std::string& path) {
    const auto& options = field.options();
    if (options.HasExtension(config::unsupported)) {
      if (!IsDefault(message, field)) {
        checker_->Add(path, "a supported field",
                      absl::StrCat("\"", field.name(), "\", which is known but not supported"),
                      options.GetExtension(config::unsupported));
      }
      return false;
    }
    if (options.HasExtension(config::no_effect)) {
      warnings_->push_back(
          absl::StrCat(path, " has no effect: ", options.GetExtension(config::no_effect)));
      return false;
    }
    return true;
  }

  void VisitValue(const SetValue& set) {
    const Reflection& reflection = *set.message.GetReflection();
    const FieldDescriptor& field = set.field;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      VisitString(set.path, field.is_repeated()
                                ? reflection.GetRepeatedString(set.message, &field, set.index)
                                : reflection.GetString(set.message, &field));
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM && !field.is_repeated()) {
      const EnumValueDescriptor& value = *reflection.GetEnum(set.message, &field);
      if (value.options().HasExtension(config::unsupported_value)) {
        checker_->Add(set.path, "a supported value",
                      absl::StrCat(value.name(), ", which is known but not supported"),
                      value.options().GetExtension(config::unsupported_value));
      }
    }
  }

  void VisitString(const std::string& path, const std::string& value) {
    if (absl::StrContains(value, "PATH_TO_BE_CONFIGURED")) {
      checker_->Add(path, "a real path", absl::StrCat("\"", value, "\""),
                    "this is the placeholder of a sample config: write where your file is");
    } else if (absl::StrContains(value, "://")) {
      checker_->Add(
          path, "a local path", absl::StrCat("\"", value, "\""),
          "remote storage is not read: copy the data to this machine and write its path here, or a "
          "relative one with --data_dir");
    }
  }

  // Returns whether the field is set to its default. False for repeated fields and messages.
  static bool IsDefault(const Message& message, const FieldDescriptor& field) {
    if (field.is_repeated() || field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) return false;
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection.GetBool(message, &field) == field.default_value_bool();
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection.GetInt32(message, &field) == field.default_value_int32();
      case FieldDescriptor::CPPTYPE_UINT32:
        return reflection.GetUInt32(message, &field) == field.default_value_uint32();
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection.GetFloat(message, &field) == field.default_value_float();
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection.GetString(message, &field) == field.default_value_string();
      case FieldDescriptor::CPPTYPE_ENUM:
        return reflection.GetEnum(message, &field) == field.default_value_enum();
      default:
        return false;
    }
  }

  FieldChecker* checker_;
  std::vector<std::string>* warnings_;
};

}  // namespace

void CheckSchemaMarks(const Message& message, FieldChecker* checker,
                      std::vector<std::string>* warnings) {
  MarkChecks(checker, warnings).Visit(message);
}

std::string SupportedFields(const google::protobuf::OneofDescriptor& oneof) {
  std::vector<std::string> names;
  for (int i = 0; i < oneof.field_count(); ++i) {
    if (!oneof.field(i)->options().HasExtension(config::unsupported))
      names.push_back(oneof.field(i)->name());
  }
  return absl::StrCat("one of ", absl::StrJoin(names, ", "));
}

}  // namespace pushpull
