// Tested by tests/worker/export/onnx_execution_test.cc.
// Tested by tests/worker/export/onnx_model_test.cc.
#include "worker/export/onnx_heads.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

// Joins the values of `heads`, [N, anchors * columns, H, W] each, to [N, A, columns].
std::string Join(const std::string& name, const std::vector<int>& heads, int64_t columns,
                 const std::vector<std::string>& nodes, OnnxGraph* graph) {
  const int64_t sizes[] = {0, -1, columns};  // 0 keeps the size of the batch
  const std::string shape = graph->AddInts(name + "_shape", {3}, sizes);
  std::vector<std::string> parts;
  for (size_t i = 0; i < heads.size(); ++i) {
    const std::string part = absl::StrCat(name, "_", i);
    const std::string pixels = graph->AddNode("Transpose", part + "_by_pixel", {nodes[heads[i]]},
                                              {{"perm", std::vector<int64_t>{0, 2, 3, 1}}});
    parts.push_back(graph->AddNode("Reshape", part, {pixels, shape}));
  }
  return graph->AddNode("Concat", name, parts, {{"axis", int64_t{1}}});
}

}  // namespace

JoinedHeads AddJoinedHeads(const DetectionSpec& spec, const std::vector<std::string>& nodes,
                           const JoinedHeads& names, OnnxGraph* graph) {
  std::vector<int> box_nodes, class_nodes;
  for (const DetectionHead& head : spec.heads) {
    box_nodes.push_back(head.box_node);
    class_nodes.push_back(head.class_node);
  }
  return {Join(names.box_codes, box_nodes, kBoxCodeSize, nodes, graph),
          Join(names.logits, class_nodes, spec.num_classes + 1, nodes, graph)};
}

}  // namespace pushpull
