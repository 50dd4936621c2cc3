// The layers of a network as ONNX nodes, from the picture to the values of every layer.
#ifndef PUSHPULL_WORKER_EXPORT_ONNX_NETWORK_H_
#define PUSHPULL_WORKER_EXPORT_ONNX_NETWORK_H_

#include <string>
#include <vector>

#include "worker/export/inference_model.h"
#include "worker/export/onnx_graph.h"

namespace pushpull {

// Adds the input `name`, uint8 [N, H, W, channels] of any size, and what makes the network's input
// of it, as worker/data/preprocessor.h has it: bilinear resize to the network's size (source = out
// * in_size / out_size), x * (2 / 255) - 1. Returns the value [N, channels, height, width].
std::string AddPreprocessing(const std::string& name, const NetworkSpec& network, OnnxGraph* graph);

// Adds all layers, batch norms folded into their convolutions, padding explicit; `image` is what
// AddPreprocessing returned. Returns each layer's value, [N, channels, height, width].
std::vector<std::string> AddLayers(const InferenceModel& model, const std::string& image,
                                   OnnxGraph* graph);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_ONNX_NETWORK_H_
