// Adds a detector's post-processing, from the values of its heads to boxes, to an ONNX graph.
#ifndef PUSHPULL_WORKER_EXPORT_ONNX_DETECTION_H_
#define PUSHPULL_WORKER_EXPORT_ONNX_DETECTION_H_

#include <string>
#include <vector>

#include "common/model/network_spec.h"
#include "worker/export/onnx_graph.h"

namespace pushpull {

// Adds the computation of kernels/detection/post_processing.h for every image of a batch. Declares
// the outputs below, with TensorFlow's names and type float32. N is the number of images, A the
// number of anchors, C is num_classes and M is max_total_detections. Boxes are ymin, xmin, ymax,
// xmax.
//   raw_detection_boxes   [N, A, 4]      decoded boxes, as fractions of the network's input. With
//                                        keep_aspect_ratio the input includes the padding.
//   raw_detection_scores  [N, A, C + 1]  scores after score_converter, background first
//   detection_boxes       [N, M, 4]      boxes as fractions of the image without padding, within
//                                        [0, 1], best first; 0 in unused rows
//   detection_scores      [N, M]         0 in unused rows
//   detection_classes     [N, M]         counted from 1; 1 in unused rows
//   num_detections        [N]            number of rows in use
// `network` is a detector (CHECK). `nodes` has the name of every node's value in the graph, of
// shape [N, channels, height, width], and `content_size` is OnnxInput::content_size.
void AddDetection(const NetworkSpec& network, const std::vector<std::string>& nodes,
                  const std::string& content_size, OnnxGraph* graph);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_ONNX_DETECTION_H_
