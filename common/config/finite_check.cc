#include "common/config/finite_check.h"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"

#include "protos/pipeline.pb.h"

namespace pushpull {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class FiniteWalker {
 public:
  explicit FiniteWalker(FieldChecker* checker) : checker_(checker) {
    for (const ConfigProblem& problem : checker->problems()) known_.insert(problem.field);
  }

  void Visit(const Message& message, const std::string& prefix) {
    std::vector<const FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (!field->options().HasExtension(config::no_effect)) {
        VisitField(message, *field, absl::StrCat(prefix, field->name()));
      }
    }
  }

 private:
  void VisitField(const Message& message, const FieldDescriptor& field, const std::string& path) {
    // Most checks name a list without the index of the element.
    if (field.message_type() == nullptr && known_.contains(path)) return;
    const Reflection& reflection = *message.GetReflection();
    const int count = field.is_repeated() ? reflection.FieldSize(message, &field) : 1;
    for (int i = 0; i < count; ++i) {
      VisitValue(message, field, i, field.is_repeated() ? absl::StrCat(path, "[", i, "]") : path);
    }
  }

  void VisitValue(const Message& message, const FieldDescriptor& field, int index,
                  const std::string& path) {
    const Reflection& reflection = *message.GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Visit(field.is_repeated() ? reflection.GetRepeatedMessage(message, &field, index)
                                : reflection.GetMessage(message, &field),
            absl::StrCat(path, "."));
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
      CheckValue(path, field.is_repeated() ? reflection.GetRepeatedFloat(message, &field, index)
                                           : reflection.GetFloat(message, &field));
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      CheckValue(path, field.is_repeated() ? reflection.GetRepeatedDouble(message, &field, index)
                                           : reflection.GetDouble(message, &field));
    }
  }

  void CheckValue(const std::string& path, double value) {
    if (std::isfinite(value) || known_.contains(path)) return;
    checker_->Add(path, "a finite number", absl::StrCat(value));
  }

  FieldChecker* checker_;
  std::set<std::string> known_;  // the fields that have problems already
};

}  // namespace

void CheckFinite(const Message& message, FieldChecker* checker) {
  FiniteWalker(checker).Visit(message, "");
}

}  // namespace pushpull
