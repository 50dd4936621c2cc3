#include "tests/testkit/onnx/onnx_interpreter.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "tests/testkit/onnx/onnx_operators.h"

namespace pushpull {
namespace {

constexpr int64_t kSupportedOpset = 13;

// Returns the indices of the nodes that the values `read` need, in their order. Adds to `read` what
// these nodes read.
std::vector<int> NeededNodes(const onnx::GraphProto& graph, const OnnxValues& given,
                             std::set<std::string>* read) {
  std::vector<int> needed;
  for (int i = graph.node_size() - 1; i >= 0; --i) {
    const onnx::NodeProto& node = graph.node(i);
    if (std::none_of(node.output().begin(), node.output().end(), [&](const std::string& output) {
          return read->count(output) > 0 && given.count(output) == 0;
        })) {
      continue;
    }
    needed.push_back(i);
    read->insert(node.input().begin(), node.input().end());
  }
  std::reverse(needed.begin(), needed.end());
  return needed;
}

// Rounds the elements to float32, or checks that they are integers.
absl::Status RoundToType(OnnxTensor* tensor) {
  CHECK_EQ(static_cast<int64_t>(tensor->values.size()), NumElements(tensor->shape));
  for (double& value : tensor->values) {
    if (tensor->type == kOnnxFloat32) {
      value = static_cast<double>(static_cast<float>(value));
    } else {
      PP_RETURN_IF_ERROR(
          Require(std::isfinite(value) && value == std::trunc(value), "computes no integer"));
    }
  }
  return absl::OkStatus();
}

absl::Status Compute(const onnx::NodeProto& node, OnnxValues* values) {
  PP_RETURN_IF_ERROR(CheckForm(node));
  std::vector<const OnnxTensor*> inputs;
  for (const std::string& name : node.input()) {
    const auto found = values->find(name);
    PP_RETURN_IF_ERROR(Require(name.empty() || found != values->end(),
                               absl::StrCat("nothing before it makes ", name)));
    inputs.push_back(name.empty() ? nullptr : &found->second);
  }
  const OnnxOperator& known = *FindOnnxOperator(node.op_type());
  for (int i = 0; i < known.least_inputs; ++i) {
    // Resize alone has optional inputs before others.
    PP_RETURN_IF_ERROR(Require(inputs[i] != nullptr || (node.op_type() == "Resize" && i > 0),
                               absl::StrCat("input ", i, " is absent")));
  }
  PP_ASSIGN_OR_RETURN(std::vector<OnnxTensor> outputs, known.compute(OnnxCall(node, inputs)));
  PP_RETURN_IF_ERROR(Require(outputs.size() == static_cast<size_t>(node.output_size()),
                             absl::StrCat("the operator has ", outputs.size(), " outputs")));
  for (size_t i = 0; i < outputs.size(); ++i) {
    PP_RETURN_IF_ERROR(RoundToType(&outputs[i]));
    const std::string& name = node.output(static_cast<int>(i));
    PP_RETURN_IF_ERROR(Require(values->emplace(name, std::move(outputs[i])).second,
                               absl::StrCat("there are two values ", name)));
  }
  return absl::OkStatus();
}

// Checks a value against its declaration. `sizes` has the sizes of the named dimensions.
absl::Status CheckDeclared(const onnx::ValueInfoProto& declared, const OnnxTensor& value,
                           std::map<std::string, int64_t>* sizes) {
  const onnx::TypeProto::Tensor& type = declared.type().tensor_type();
  bool fits = type.elem_type() == value.type &&
              type.shape().dim_size() == static_cast<int>(value.shape.size());
  for (int axis = 0; fits && axis < type.shape().dim_size(); ++axis) {
    const auto& dimension = type.shape().dim(axis);
    const int64_t size = value.shape[axis];
    fits = dimension.has_dim_param()
               ? sizes->emplace(dimension.dim_param(), size).first->second == size
               : dimension.dim_value() == size;
  }
  return Require(fits, absl::StrCat(declared.name(), " is ", DescribeTensor(value),
                                    ", the graph declares ", type.ShortDebugString()));
}

}  // namespace

absl::StatusOr<OnnxValues> EvaluateOnnx(const onnx::GraphProto& graph, const OnnxValues& given,
                                        const std::vector<std::string>& wanted) {
  std::set<std::string> read(wanted.begin(), wanted.end());
  const std::vector<int> nodes = NeededNodes(graph, given, &read);
  OnnxValues values = given;
  for (const onnx::TensorProto& constant : graph.initializer()) {
    if (read.count(constant.name()) == 0) continue;
    PP_ASSIGN_OR_RETURN(OnnxTensor tensor, ReadConstant(constant));
    PP_RETURN_IF_ERROR(Require(values.emplace(constant.name(), std::move(tensor)).second,
                               absl::StrCat("there are two values ", constant.name())));
  }
  for (const int i : nodes) {
    const onnx::NodeProto& node = graph.node(i);
    const absl::Status status = Compute(node, &values);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("node ", node.name(), " (", node.op_type(),
                                                     "): ", std::string(status.message())));
    }
  }
  OnnxValues results;
  for (const std::string& name : wanted) {
    const auto found = values.find(name);
    PP_RETURN_IF_ERROR(Require(found != values.end(), absl::StrCat("the graph has no ", name)));
    results[name] = found->second;
  }
  return results;
}

absl::StatusOr<OnnxValues> RunOnnx(const onnx::ModelProto& model, const OnnxValues& inputs) {
  PP_RETURN_IF_ERROR(Require(model.opset_import_size() == 1 &&
                                 model.opset_import(0).domain().empty() &&
                                 model.opset_import(0).version() == kSupportedOpset,
                             "the model does not use opset 13 alone"));
  const onnx::GraphProto& graph = model.graph();
  std::map<std::string, int64_t> sizes;
  PP_RETURN_IF_ERROR(Require(inputs.size() == static_cast<size_t>(graph.input_size()),
                             absl::StrCat("the graph has ", graph.input_size(), " inputs")));
  for (const onnx::ValueInfoProto& declared : graph.input()) {
    const auto found = inputs.find(declared.name());
    PP_RETURN_IF_ERROR(Require(found != inputs.end(), absl::StrCat("no input ", declared.name())));
    PP_RETURN_IF_ERROR(CheckDeclared(declared, found->second, &sizes));
  }
  std::vector<std::string> wanted;
  for (const onnx::ValueInfoProto& declared : graph.output()) wanted.push_back(declared.name());
  PP_ASSIGN_OR_RETURN(OnnxValues outputs, EvaluateOnnx(graph, inputs, wanted));
  for (const onnx::ValueInfoProto& declared : graph.output()) {
    PP_RETURN_IF_ERROR(CheckDeclared(declared, outputs.at(declared.name()), &sizes));
  }
  return outputs;
}

}  // namespace pushpull
