// Adds the preprocessing, from images of any size to the network's input, to an ONNX graph.
#ifndef PUSHPULL_WORKER_EXPORT_ONNX_PREPROCESSING_H_
#define PUSHPULL_WORKER_EXPORT_ONNX_PREPROCESSING_H_

#include <string>

#include "common/model/network_spec.h"
#include "worker/export/onnx_graph.h"

namespace pushpull {

// Names of values in the graph.
struct OnnxInput {
  std::string image;  // the network's input, float32 [N, channels, height, width]
  // With keep_aspect_ratio: float32 [2], the height and width of the scaled image in the upper left
  // corner of the network's input. The rest is padding. All images of a batch share it. Empty: the
  // scaled image fills the input.
  std::string content_size;
};

// Adds the graph input `name`, uint8 [N, H, W, channels] of any size, and the preprocessing of
// worker/data/preprocessor.h. This is a bilinear resize (source = out * in_size / out_size) to the
// size of the network's input, followed by x * (2 / 255) - 1. With keep_aspect_ratio the graph
// computes ScaledSize, resizes to it and pads.
OnnxInput AddPreprocessing(const std::string& name, const NetworkSpec& network, OnnxGraph* graph);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_ONNX_PREPROCESSING_H_
