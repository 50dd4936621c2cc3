// Puts an ONNX graph together node by node. Names are checked as they come, so the nodes stand in
// an order in which they can be computed.
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

// A number, or the name of one that is known when the model runs.
using OnnxDimension = std::variant<int64_t, std::string>;

struct OnnxAttribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>> value;
};

// Values are known by their names; the Add functions return the name of what they add. CHECKs that
// a name is new and that what a node reads is there already. Not thread-safe.
class OnnxGraph {
 public:
  explicit OnnxGraph(std::string name);

  std::string AddInput(const std::string& name, onnx::TensorProto::DataType type,
                       const std::vector<OnnxDimension>& shape);
  // Constants. `values` has the elements of `shape` in C order; an empty shape is one number.
  std::string AddFloats(const std::string& name, const std::vector<int64_t>& shape,
                        absl::Span<const float> values);
  std::string AddInts(const std::string& name, const std::vector<int64_t>& shape,
                      absl::Span<const int64_t> values);

  // A node of one output. An empty input is an argument that is not given.
  std::string AddNode(absl::string_view operation, const std::string& output,
                      const std::vector<std::string>& inputs,
                      const std::vector<OnnxAttribute>& attributes = {});
  std::vector<std::string> AddNodeOfSeveral(absl::string_view operation,
                                            const std::vector<std::string>& outputs,
                                            const std::vector<std::string>& inputs,
                                            const std::vector<OnnxAttribute>& attributes = {});

  // Declares a value that is there as an output of the graph.
  void AddOutput(const std::string& name, onnx::TensorProto::DataType type,
                 const std::vector<OnnxDimension>& shape);

  onnx::GraphProto Finish() && { return std::move(graph_); }

 private:
  void Claim(const std::string& name);

  onnx::GraphProto graph_;
  absl::flat_hash_set<std::string> names_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_ONNX_GRAPH_H_
