// Tested by tests/worker/export/onnx_model_test.cc.
#include "worker/export/onnx_graph.h"

#include <utility>

#include "glog/logging.h"

namespace pushpull {
namespace {

int64_t NumElements(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t dimension : shape) elements *= dimension;
  return elements;
}

// raw_data is little-endian, so it has the bytes of an array on x86.
template <typename T>
void FillTensor(const std::string& name, onnx::TensorProto::DataType type,
                const std::vector<int64_t>& shape, absl::Span<const T> values,
                onnx::TensorProto* tensor) {
  CHECK_EQ(static_cast<int64_t>(values.size()), NumElements(shape)) << name;
  tensor->set_name(name);
  tensor->set_data_type(type);
  for (const int64_t dimension : shape) tensor->add_dims(dimension);
  tensor->set_raw_data(values.data(), values.size() * sizeof(T));
}

void FillInfo(const std::string& name, onnx::TensorProto::DataType type,
              const std::vector<OnnxDimension>& shape, onnx::ValueInfoProto* info) {
  info->set_name(name);
  onnx::TypeProto::Tensor* const tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  for (const OnnxDimension& dimension : shape) {
    onnx::TensorShapeProto::Dimension* const added = tensor->mutable_shape()->add_dim();
    if (const auto* const value = std::get_if<int64_t>(&dimension)) {
      added->set_dim_value(*value);
    } else {
      added->set_dim_param(std::get<std::string>(dimension));
    }
  }
}

void FillAttribute(const OnnxAttribute& from, onnx::AttributeProto* to) {
  to->set_name(from.name);
  if (const auto* const i = std::get_if<int64_t>(&from.value)) {
    to->set_type(onnx::AttributeProto::INT);
    to->set_i(*i);
  } else if (const auto* const f = std::get_if<float>(&from.value)) {
    to->set_type(onnx::AttributeProto::FLOAT);
    to->set_f(*f);
  } else if (const auto* const s = std::get_if<std::string>(&from.value)) {
    to->set_type(onnx::AttributeProto::STRING);
    to->set_s(*s);
  } else {
    to->set_type(onnx::AttributeProto::INTS);
    for (const int64_t value : std::get<std::vector<int64_t>>(from.value)) to->add_ints(value);
  }
}

}  // namespace

OnnxGraph::OnnxGraph(std::string name) { graph_.set_name(std::move(name)); }

void OnnxGraph::Claim(const std::string& name) {
  CHECK(!name.empty());
  CHECK(names_.insert(name).second) << "two values of the graph are called " << name;
}

std::string OnnxGraph::AddInput(const std::string& name, onnx::TensorProto::DataType type,
                                const std::vector<OnnxDimension>& shape) {
  Claim(name);
  FillInfo(name, type, shape, graph_.add_input());
  return name;
}

std::string OnnxGraph::AddFloats(const std::string& name, const std::vector<int64_t>& shape,
                                 absl::Span<const float> values) {
  Claim(name);
  FillTensor(name, onnx::TensorProto::FLOAT, shape, values, graph_.add_initializer());
  return name;
}

std::string OnnxGraph::AddInts(const std::string& name, const std::vector<int64_t>& shape,
                               absl::Span<const int64_t> values) {
  Claim(name);
  FillTensor(name, onnx::TensorProto::INT64, shape, values, graph_.add_initializer());
  return name;
}

std::string OnnxGraph::AddNode(absl::string_view operation, const std::string& output,
                               const std::vector<std::string>& inputs,
                               const std::vector<OnnxAttribute>& attributes) {
  return AddNodeOfSeveral(operation, {output}, inputs, attributes)[0];
}

std::vector<std::string> OnnxGraph::AddNodeOfSeveral(absl::string_view operation,
                                                     const std::vector<std::string>& outputs,
                                                     const std::vector<std::string>& inputs,
                                                     const std::vector<OnnxAttribute>& attributes) {
  onnx::NodeProto* const node = graph_.add_node();
  node->set_op_type(std::string(operation));
  node->set_name(outputs[0]);
  for (const std::string& input : inputs) {
    CHECK(input.empty() || names_.contains(input)) << operation << " reads " << input;
    node->add_input(input);
  }
  for (const std::string& output : outputs) {
    Claim(output);
    node->add_output(output);
  }
  for (const OnnxAttribute& attribute : attributes) FillAttribute(attribute, node->add_attribute());
  return outputs;
}

void OnnxGraph::AddOutput(const std::string& name, onnx::TensorProto::DataType type,
                          const std::vector<OnnxDimension>& shape) {
  CHECK(names_.contains(name)) << name;
  FillInfo(name, type, shape, graph_.add_output());
}

}  // namespace pushpull
