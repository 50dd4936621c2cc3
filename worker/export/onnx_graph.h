// OnnxGraph builds an ONNX graph node by node. A node can read only values that were added before
// it, so the nodes are in topological order, as ONNX requires.
#ifndef PUSHPULL_WORKER_EXPORT_ONNX_GRAPH_H_
#define PUSHPULL_WORKER_EXPORT_ONNX_GRAPH_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "protos/onnx.pb.h"

namespace pushpull {

// The size of a dimension, or a name for a size that is known only when the model runs.
using OnnxDimension = std::variant<int64_t, std::string>;

// onnx::TensorProto::FLOAT as the value of an attribute.
inline constexpr int64_t kOnnxFloat = onnx::TensorProto::FLOAT;

struct OnnxAttribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>> value;
};

// Not thread-safe. Values are identified by their names, and the Add functions return the names of
// the values that they add. They CHECK that new names are unique and that the inputs of a node
// exist.
class OnnxGraph {
 public:
  explicit OnnxGraph(std::string name);

  std::string AddInput(const std::string& name, onnx::TensorProto::DataType type,
                       const std::vector<OnnxDimension>& shape);
  // Add a constant. `values` has the elements of `shape` in C order (CHECK on their number). An
  // empty shape makes a scalar.
  std::string AddFloats(const std::string& name, const std::vector<int64_t>& shape,
                        absl::Span<const float> values);
  std::string AddInts(const std::string& name, const std::vector<int64_t>& shape,
                      absl::Span<const int64_t> values);

  // Adds a node with one output. An empty string in `inputs` stands for an absent optional
  // argument.
  std::string AddNode(absl::string_view operation, const std::string& output,
                      const std::vector<std::string>& inputs,
                      const std::vector<OnnxAttribute>& attributes = {});
  // The same for a node with several outputs.
  std::vector<std::string> AddNodeOfSeveral(absl::string_view operation,
                                            const std::vector<std::string>& outputs,
                                            const std::vector<std::string>& inputs,
                                            const std::vector<OnnxAttribute>& attributes = {});

  // Declares an existing value as an output of the graph.
  void AddOutput(const std::string& name, onnx::TensorProto::DataType type,
                 const std::vector<OnnxDimension>& shape);

  onnx::GraphProto Finish() && { return std::move(graph_); }

 private:
  // Registers a new name.
  void Claim(const std::string& name);

  onnx::GraphProto graph_;
  absl::flat_hash_set<std::string> names_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_ONNX_GRAPH_H_
