// Joins the values of a detector's heads to two tensors, in an ONNX graph. Thread-safe.
#ifndef PUSHPULL_WORKER_EXPORT_ONNX_HEADS_H_
#define PUSHPULL_WORKER_EXPORT_ONNX_HEADS_H_

#include <string>
#include <vector>

#include "common/model/detection_spec.h"
#include "worker/export/onnx_graph.h"

namespace pushpull {

// Names of values in the graph. A is the number of anchors, in the order of GenerateAnchors.
struct JoinedHeads {
  std::string box_codes;  // [N, A, 4], codes of kernels/detection/box_coder.h
  std::string logits;     // [N, A, num_classes + 1], background first, before score_converter
};

// Adds the two values under the names `names`, and what they need under names that begin with
// these. `nodes` has the name of every node's value in the graph, of shape [N, channels, height,
// width].
JoinedHeads AddJoinedHeads(const DetectionSpec& spec, const std::vector<std::string>& nodes,
                           const JoinedHeads& names, OnnxGraph* graph);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_ONNX_HEADS_H_
