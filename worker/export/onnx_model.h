// Builds a complete ONNX model of a trained network, from the pixels of an image to the
// predictions. Thread-safe.
#ifndef PUSHPULL_WORKER_EXPORT_ONNX_MODEL_H_
#define PUSHPULL_WORKER_EXPORT_ONNX_MODEL_H_

#include "protos/onnx.pb.h"
#include "worker/export/inference_model.h"

namespace pushpull {

inline constexpr int64_t kOnnxOpset = 13;
inline constexpr int64_t kOnnxIrVersion = 7;

// Builds the model. Its input is a batch of images, uint8 [N, H, W, channels], of any number and
// any size; all images of a batch have the same size. The graph resizes them to the network's
// input. A detector has the input `image_tensor` and the outputs of AddDetection. A classifier has
// the input `input` and the outputs `logits` and `probabilities`, float32 [N, num_classes]. Batch
// norms are folded into the convolutions. metadata_props has the entries of DescribeModel.
onnx::ModelProto BuildOnnxModel(const InferenceModel& model);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_ONNX_MODEL_H_
