#include "common/config/finite_check.h"

#include <cmath>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"

#include "common/config/set_values.h"
#include "protos/pipeline.pb.h"

namespace pushpull {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Returns the value of a field of type float or double, and 0 for other fields.
double NumberOf(const SetValue& value) {
  const Reflection& reflection = *value.message.GetReflection();
  const FieldDescriptor& field = value.field;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_FLOAT:
      return field.is_repeated() ? reflection.GetRepeatedFloat(value.message, &field, value.index)
                                 : reflection.GetFloat(value.message, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return field.is_repeated() ? reflection.GetRepeatedDouble(value.message, &field, value.index)
                                 : reflection.GetDouble(value.message, &field);
    default:
      return 0;
  }
}

}  // namespace

void CheckFinite(const Message& message, FieldChecker* checker) {
  std::set<std::string> known;  // the fields that have problems already
  for (const ConfigProblem& problem : checker->problems()) known.insert(problem.field);
  ForEachSetValue(
      message,
      [&](const Message&, const FieldDescriptor& field, const std::string& path) {
        // Most checks name a list without the index of the element.
        return !field.options().HasExtension(config::no_effect) &&
               (field.message_type() != nullptr || !known.contains(path));
      },
      [&](const SetValue& value) {
        const double number = NumberOf(value);
        if (std::isfinite(number) || known.contains(value.path)) return;
        checker->Add(value.path, "a finite number", absl::StrCat(number));
      });
}

}  // namespace pushpull
