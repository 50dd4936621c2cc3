// The operators of ONNX that the exporter writes, as simple loops, at opset 13. Thread-safe.
//
// The operators are stricter than ONNX: every attribute has to be written in the graph, because
// readers that take an older or newer opset have other defaults, and there is no operator,
// attribute or optional input that the exporter does not use.
#ifndef PUSHPULL_TESTS_TESTKIT_ONNX_ONNX_OPERATORS_H_
#define PUSHPULL_TESTS_TESTKIT_ONNX_ONNX_OPERATORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "glog/logging.h"

#include "protos/onnx.pb.h"
#include "tests/testkit/onnx/onnx_tensor.h"

namespace pushpull {

// A node and the values of its inputs. The node and the values must outlive the call.
class OnnxCall {
 public:
  // A null pointer stands for an optional input that is absent.
  OnnxCall(const onnx::NodeProto& node, std::vector<const OnnxTensor*> inputs)
      : node_(node), inputs_(std::move(inputs)) {}

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return node_.output_size(); }
  bool Has(int i) const { return i < num_inputs() && inputs_[i] != nullptr; }
  const OnnxTensor& In(int i) const {
    CHECK(Has(i)) << node_.op_type() << " has no input " << i;
    return *inputs_[i];
  }
  // Returns the elements of an input, which has one axis and type INT64.
  absl::StatusOr<std::vector<int64_t>> IntsIn(int i) const;

  bool HasAttribute(const std::string& name) const { return FindAttribute(name) != nullptr; }
  // Return the value of an attribute that the node has (CHECK).
  int64_t Int(const std::string& name) const { return Attribute(name).i(); }
  double Float(const std::string& name) const { return Attribute(name).f(); }
  std::string String(const std::string& name) const { return Attribute(name).s(); }
  std::vector<int64_t> Ints(const std::string& name) const {
    const onnx::AttributeProto& attribute = Attribute(name);
    return {attribute.ints().begin(), attribute.ints().end()};
  }

 private:
  const onnx::AttributeProto* FindAttribute(const std::string& name) const;
  const onnx::AttributeProto& Attribute(const std::string& name) const {
    const onnx::AttributeProto* const attribute = FindAttribute(name);
    CHECK(attribute != nullptr) << node_.op_type() << " has no attribute " << name;
    return *attribute;
  }

  const onnx::NodeProto& node_;
  const std::vector<const OnnxTensor*> inputs_;
};

using OnnxAttributeTypes = std::map<std::string, onnx::AttributeProto::AttributeType>;

struct OnnxOperator {
  using Outputs = absl::StatusOr<std::vector<OnnxTensor>>;

  int least_inputs = 1;
  int most_inputs = 1;
  // The node has to have each of these attributes, and may have only the optional ones besides.
  OnnxAttributeTypes attributes;
  // INVALID_ARGUMENT: types, shapes or values do not fit the operator. Values of type FLOAT may be
  // more precise than float32; the caller rounds them.
  std::function<Outputs(const OnnxCall&)> compute;
  OnnxAttributeTypes optional_attributes = {};
};

// The types of attributes.
inline constexpr auto kFloatAttribute = onnx::AttributeProto::FLOAT;
inline constexpr auto kIntAttribute = onnx::AttributeProto::INT;
inline constexpr auto kIntsAttribute = onnx::AttributeProto::INTS;
inline constexpr auto kStringAttribute = onnx::AttributeProto::STRING;

// Returns the outputs of an operator that has one.
inline std::vector<OnnxTensor> OneOutput(OnnxTensor tensor) {
  std::vector<OnnxTensor> outputs;
  outputs.push_back(std::move(tensor));
  return outputs;
}

// Returns null if there is no such operator.
const OnnxOperator* FindOnnxOperator(const std::string& name);

// Returns INVALID_ARGUMENT if the operator, the number of its inputs or an attribute is unknown.
absl::Status CheckForm(const onnx::NodeProto& node);

// FindOnnxOperator looks in these four groups of operators.
using OnnxOperators = std::map<std::string, OnnxOperator>;
OnnxOperators ElementwiseOperators();  // and reductions
OnnxOperators LayerOperators();        // convolutions, pools, resizing and softmax
OnnxOperators LayoutOperators();       // operators that move elements to other places
OnnxOperators SelectionOperators();    // operators that depend on the order or index of elements

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_ONNX_ONNX_OPERATORS_H_
