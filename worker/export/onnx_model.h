// A trained network as an ONNX model: opset 13, IR version 7, from a picture's bytes to the answer.
#ifndef PUSHPULL_WORKER_EXPORT_ONNX_MODEL_H_
#define PUSHPULL_WORKER_EXPORT_ONNX_MODEL_H_

#include "protos/onnx.pb.h"
#include "worker/export/inference_model.h"

namespace pushpull {

inline constexpr int64_t kOnnxOpset = 13;
inline constexpr int64_t kOnnxIrVersion = 7;

// Inputs are pictures, uint8 [N, H, W, channels]: any number, all of one size, which need not be
// the network's. A detector's input is `image_tensor` and its outputs those of AddDetection; a
// classifier's are `input`, and `logits` and `probabilities`, float32 [N, num_classes]. Batch norms
// are folded. metadata_props say which model and step it is, and what happens to the picture.
onnx::ModelProto BuildOnnxModel(const InferenceModel& model);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_ONNX_MODEL_H_
