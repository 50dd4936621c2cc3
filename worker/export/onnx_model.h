// Builds ONNX models of a trained network. Thread-safe.
#ifndef PUSHPULL_WORKER_EXPORT_ONNX_MODEL_H_
#define PUSHPULL_WORKER_EXPORT_ONNX_MODEL_H_

#include "protos/onnx.pb.h"
#include "worker/export/inference_model.h"

namespace pushpull {

inline constexpr int64_t kOnnxOpset = 13;
inline constexpr int64_t kOnnxIrVersion = 7;

// Builds the complete model, from the pixels of an image to the predictions. Its input is a batch
// of images, uint8 [N, H, W, channels], of any number and any size; all images of a batch have the
// same size. The graph resizes them to the network's input. A detector has the input `image_tensor`
// and the outputs of AddDetection. A classifier has the input `input` and the outputs `logits` and
// `probabilities`, float32 [N, num_classes]. Batch norms are folded into the convolutions.
// metadata_props has the entries of DescribeModel.
onnx::ModelProto BuildOnnxModel(const InferenceModel& model);

// Names of the inputs and outputs of BuildRawHeadsModel.
inline constexpr char kRawInput[] = "input";
inline constexpr char kRawBoxes[] = "box_encodings";
inline constexpr char kRawScores[] = "class_predictions_with_background";
inline constexpr char kLogits[] = "logits";
inline constexpr char kProbabilities[] = "probabilities";

// Builds the model for compilers that take no dynamic shapes and no NonMaxSuppression: the network
// alone, for one image. Its input kRawInput is float32 [1, channels, height, width], the
// preprocessed image. The outputs of a detector with A anchors are kRawBoxes, box codes
// [1, A, 4], and kRawScores, logits [1, A, num_classes + 1] with the background first; a classifier
// has kLogits and kProbabilities, [1, num_classes]. heads_file.h says the rest.
onnx::ModelProto BuildRawHeadsModel(const InferenceModel& model);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_ONNX_MODEL_H_
