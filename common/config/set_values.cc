#include "common/config/set_values.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class Walk {
 public:
  using Enter = absl::FunctionRef<bool(const Message&, const FieldDescriptor&, const std::string&)>;

  Walk(Enter enter, absl::FunctionRef<void(const SetValue&)> visit)
      : enter_(enter), visit_(visit) {}

  void Into(const Message& message, const std::string& prefix) {
    const Reflection& reflection = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection.ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      const std::string path = absl::StrCat(prefix, field->name());
      if (!enter_(message, *field, path)) continue;
      if (!field->is_repeated()) {
        Value({message, *field, 0, path});
        continue;
      }
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        const std::string element = absl::StrCat(path, "[", i, "]");
        Value({message, *field, i, element});
      }
    }
  }

 private:
  void Value(const SetValue& value) {
    if (value.field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return visit_(value);
    const Reflection& reflection = *value.message.GetReflection();
    Into(value.field.is_repeated()
             ? reflection.GetRepeatedMessage(value.message, &value.field, value.index)
             : reflection.GetMessage(value.message, &value.field),
         absl::StrCat(value.path, "."));
  }

  const Enter enter_;
  const absl::FunctionRef<void(const SetValue&)> visit_;
};

}  // namespace

void ForEachSetValue(
    const Message& message,
    absl::FunctionRef<bool(const Message&, const FieldDescriptor&, const std::string&)> enter,
    absl::FunctionRef<void(const SetValue&)> visit) {
  Walk(enter, visit).Into(message, "");
}

}  // namespace pushpull
