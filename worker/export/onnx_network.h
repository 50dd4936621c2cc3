// The layers of a network as ONNX nodes, from the network's input to the values of every layer.
#ifndef PUSHPULL_WORKER_EXPORT_ONNX_NETWORK_H_
#define PUSHPULL_WORKER_EXPORT_ONNX_NETWORK_H_

#include <string>
#include <vector>

#include "worker/export/inference_model.h"
#include "worker/export/onnx_graph.h"

namespace pushpull {

// Adds all layers, batch norms folded into their convolutions, padding explicit; `image` is the
// network's input, [N, channels, height, width]. Returns each layer's value, [N, channels, height,
// width].
std::vector<std::string> AddLayers(const InferenceModel& model, const std::string& image,
                                   OnnxGraph* graph);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_ONNX_NETWORK_H_
