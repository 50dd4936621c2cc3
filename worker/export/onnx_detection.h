// From the heads of a detector to boxes, within an ONNX graph.
#ifndef PUSHPULL_WORKER_EXPORT_ONNX_DETECTION_H_
#define PUSHPULL_WORKER_EXPORT_ONNX_DETECTION_H_

#include <string>
#include <vector>

#include "common/model/network_spec.h"
#include "worker/export/onnx_graph.h"

namespace pushpull {

// Adds what kernels/detection/post_processing.h does, for every picture of a batch, and declares
// the outputs under TensorFlow's names, all float32; M is max_total_detections, A the anchors, C
// num_classes:
//   raw_detection_boxes   [N, A, 4]      as decoded: ymin, xmin, ymax, xmax, in shares of the
//                                        network's input: with keep_aspect_ratio that is the
//                                        picture and its padding
//   raw_detection_scores  [N, A, C + 1]  converted, background first
//   detection_boxes       [N, M, 4]      within [0, 1], shares of the picture without any padding,
//                                        best first; rows that are left over are 0
//   detection_scores      [N, M]         0 in rows that are left over
//   detection_classes     [N, M]         counted from 1; 1 in rows that are left over
//   num_detections        [N]
// `network` is a detector's, `layers` are the values of its layers, [N, channels, height, width],
// and `content_size` is what AddPreprocessing returned.
void AddDetection(const NetworkSpec& network, const std::vector<std::string>& layers,
                  const std::string& content_size, OnnxGraph* graph);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_ONNX_DETECTION_H_
