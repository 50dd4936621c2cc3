// A reference interpreter of ONNX, for tests of the exporter. Thread-safe.
//
// It computes each node by itself, with simple loops in double precision, and rounds its outputs of
// type FLOAT to float32, as a runtime does. It accepts only what the exporter writes
// (onnx_operators.h) and checks types and shapes.
#ifndef PUSHPULL_TESTS_TESTKIT_ONNX_ONNX_INTERPRETER_H_
#define PUSHPULL_TESTS_TESTKIT_ONNX_ONNX_INTERPRETER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "protos/onnx.pb.h"
#include "tests/testkit/onnx/onnx_tensor.h"

namespace pushpull {

// Returns the outputs of the model for values of all its inputs.
// INVALID_ARGUMENT: the model has another opset than 13, an input or output does not have its
// declared type and shape, or EvaluateOnnx fails. The message names the node or value.
absl::StatusOr<OnnxValues> RunOnnx(const onnx::ModelProto& model, const OnnxValues& inputs);

// Returns the values `wanted` of a graph, and computes only the nodes that these need. `given` has
// values of the graph's inputs; it may also have values that nodes would produce, which are then
// not computed. INVALID_ARGUMENT: a node reads a value that no constant and no earlier node makes,
// a name has two values, or an operator does not accept a node.
absl::StatusOr<OnnxValues> EvaluateOnnx(const onnx::GraphProto& graph, const OnnxValues& given,
                                        const std::vector<std::string>& wanted);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_ONNX_ONNX_INTERPRETER_H_
