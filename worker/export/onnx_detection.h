// From the heads of a detector to boxes, within an ONNX graph.
#ifndef PUSHPULL_WORKER_EXPORT_ONNX_DETECTION_H_
#define PUSHPULL_WORKER_EXPORT_ONNX_DETECTION_H_

#include <string>
#include <vector>

#include "common/model/detection_spec.h"
#include "worker/export/onnx_graph.h"

namespace pushpull {

// Adds what kernels/detection/post_processing.h does, for every picture of a batch, and declares
// the outputs under TensorFlow's names, all float32; M is max_total_detections, A the anchors, C
// num_classes:
//   raw_detection_boxes   [N, A, 4]      as decoded: ymin, xmin, ymax, xmax, shares of the picture
//   raw_detection_scores  [N, A, C + 1]  converted, background first
//   detection_boxes       [N, M, 4]      within [0, 1], best first; rows that are left over are 0
//   detection_scores      [N, M]         0 in rows that are left over
//   detection_classes     [N, M]         counted from 1; 1 in rows that are left over
//   num_detections        [N]
// `layers` are the values of the network's layers, [N, channels, height, width].
void AddDetection(const DetectionSpec& spec, const std::vector<std::string>& layers,
                  OnnxGraph* graph);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_ONNX_DETECTION_H_
