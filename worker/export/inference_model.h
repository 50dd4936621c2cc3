// A trained network as it is used: its description and the values of its variables.
#ifndef PUSHPULL_WORKER_EXPORT_INFERENCE_MODEL_H_
#define PUSHPULL_WORKER_EXPORT_INFERENCE_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "common/file_system.h"
#include "common/model/network_spec.h"
#include "common/variable_layout.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

struct InferenceModel {
  NetworkSpec network;
  VariableLayout layout;
  // layout.total_elements(). Bias-corrected moving statistics are already corrected: whoever uses
  // them needs to know nothing of training.
  std::vector<float> values;
  uint64_t step = 0;
  bool moving_averages = false;  // the values are the EMA, not the raw weights
  std::string run_id;
};

// The values of one of the layout's variables (CHECK).
absl::Span<const float> ValuesOf(const InferenceModel& model, absl::string_view variable);

struct InferenceModelOptions {
  int64_t step = -1;  // -1: the newest checkpoint
  bool use_moving_averages = false;
};

// `config` says what network it is. NOT_FOUND: no such checkpoint, with those that are there.
// FAILED_PRECONDITION: the checkpoint lacks a variable of the network (it and the names that come
// nearest are in the message), has another shape, or has no EMA. DATA_LOSS: it does not verify.
absl::StatusOr<InferenceModel> LoadInferenceModel(FileSystem& files,
                                                  const std::string& checkpoint_dir,
                                                  const config::TrainEvalPipelineConfig& config,
                                                  const InferenceModelOptions& options);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_INFERENCE_MODEL_H_
