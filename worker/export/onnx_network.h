// Adds the nodes of a network to an ONNX graph.
#ifndef PUSHPULL_WORKER_EXPORT_ONNX_NETWORK_H_
#define PUSHPULL_WORKER_EXPORT_ONNX_NETWORK_H_

#include <string>
#include <vector>

#include "worker/export/inference_model.h"
#include "worker/export/onnx_graph.h"

namespace pushpull {

// Adds all nodes. Batch norms are folded into their convolutions, and padding is explicit. `image`
// is the name of the network's input in the graph, [N, channels, height, width]. Returns the name
// of each node's value, which has the same order of axes; "" for a convolution that was folded.
std::vector<std::string> AddNodes(const InferenceModel& model, const std::string& image,
                                  OnnxGraph* graph);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_ONNX_NETWORK_H_
