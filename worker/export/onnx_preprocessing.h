// From a picture of any size to the network's input, within an ONNX graph.
#ifndef PUSHPULL_WORKER_EXPORT_ONNX_PREPROCESSING_H_
#define PUSHPULL_WORKER_EXPORT_ONNX_PREPROCESSING_H_

#include <string>

#include "common/model/network_spec.h"
#include "worker/export/onnx_graph.h"

namespace pushpull {

// Values of the graph.
struct OnnxInput {
  std::string image;  // float32 [N, channels, height, width]
  // float32 [2]: the rows and columns of the image that the picture fills, from the upper left
  // corner on; the same for all pictures of a batch. Empty: it fills the image.
  std::string content_size;
};

// Adds the input `name`, uint8 [N, H, W, channels] of any size, and what makes the network's input
// of it, as worker/data/preprocessor.h has it: bilinear resize (source = out * in_size / out_size)
// to the network's size, or with keep_aspect_ratio to ScaledSize, computed in the graph, and
// padding; x * (2 / 255) - 1.
OnnxInput AddPreprocessing(const std::string& name, const NetworkSpec& network, OnnxGraph* graph);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_ONNX_PREPROCESSING_H_
