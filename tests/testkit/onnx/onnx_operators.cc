#include "tests/testkit/onnx/onnx_operators.h"

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace pushpull {

absl::StatusOr<std::vector<int64_t>> OnnxCall::IntsIn(int i) const {
  const OnnxTensor& tensor = In(i);
  PP_RETURN_IF_ERROR(RequireType(tensor, kOnnxInt64));
  PP_RETURN_IF_ERROR(Require(tensor.shape.size() == 1, "a list of integers has one axis"));
  return std::vector<int64_t>(tensor.values.begin(), tensor.values.end());
}

const onnx::AttributeProto* OnnxCall::FindAttribute(const std::string& name) const {
  for (const onnx::AttributeProto& attribute : node_.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

const OnnxOperator* FindOnnxOperator(const std::string& name) {
  static const OnnxOperators* const kOperators = [] {
    auto* const all = new OnnxOperators;
    for (const OnnxOperators& part :
         {ElementwiseOperators(), LayerOperators(), LayoutOperators(), SelectionOperators()}) {
      for (const auto& [key, value] : part) CHECK(all->emplace(key, value).second) << key;
    }
    return all;
  }();
  const auto found = kOperators->find(name);
  return found == kOperators->end() ? nullptr : &found->second;
}

absl::Status CheckForm(const onnx::NodeProto& node) {
  const OnnxOperator* const known = FindOnnxOperator(node.op_type());
  PP_RETURN_IF_ERROR(Require(known != nullptr && node.domain().empty(),
                             absl::StrCat("there is no operator ", node.op_type())));
  const int inputs = node.input_size();
  PP_RETURN_IF_ERROR(Require(inputs >= known->least_inputs && inputs <= known->most_inputs,
                             absl::StrCat(node.op_type(), " does not have ", inputs, " inputs")));
  OnnxAttributeTypes open = known->attributes;
  open.insert(known->optional_attributes.begin(), known->optional_attributes.end());
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    const auto found = open.find(attribute.name());
    PP_RETURN_IF_ERROR(Require(found != open.end() && found->second == attribute.type(),
                               absl::StrCat(node.op_type(), " has no attribute ", attribute.name(),
                                            " of type ", static_cast<int>(attribute.type()))));
    open.erase(found);
  }
  for (const auto& [name, type] : open) {
    PP_RETURN_IF_ERROR(Require(known->optional_attributes.count(name) > 0,
                               absl::StrCat(node.op_type(), " lacks the attribute ", name)));
  }
  return absl::OkStatus();
}

}  // namespace pushpull
