// InferenceModel is a trained network for inference: its description and the values of its
// variables.
#ifndef PUSHPULL_WORKER_EXPORT_INFERENCE_MODEL_H_
#define PUSHPULL_WORKER_EXPORT_INFERENCE_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "common/base/file_system.h"
#include "common/model/network_spec.h"
#include "common/model/variable_layout.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Plain values; safe to read from several threads.
struct InferenceModel {
  NetworkSpec network;
  VariableLayout layout;
  // layout.total_elements() values. Moving statistics with bias_corrected are already corrected.
  std::vector<float> values;
  uint64_t step = 0;             // of the checkpoint
  bool moving_averages = false;  // true: the values are the EMA; false: the raw weights
  std::string run_id;
};

// Returns the values of a variable, given by its name or by its index in NetworkSpec::variables.
// They are valid as long as `model` and its values are not changed. CHECKs that the layout has the
// variable.
absl::Span<const float> ValuesOf(const InferenceModel& model, absl::string_view variable);
absl::Span<const float> ValuesOf(const InferenceModel& model, int variable);

struct InferenceModelOptions {
  int64_t step = -1;                 // of the checkpoint; negative: the run's newest
  bool use_moving_averages = false;  // read the EMA in place of the raw weights
};

// Loads the variables of the network that the valid `config` describes from the checkpoint that
// OpenTrainedCheckpoint opens. Blocks while it reads.
//
// NOT_FOUND: the checkpoint does not exist; the message names the existing ones.
// FAILED_PRECONDITION: the checkpoint lacks a variable of the network (the message names it and the
// most similar names), has it in another shape, or has no EMA. DATA_LOSS: the checkpoint fails its
// verification.
absl::StatusOr<InferenceModel> LoadInferenceModel(FileSystem& files,
                                                  const std::string& checkpoint_dir,
                                                  const config::TrainEvalPipelineConfig& config,
                                                  const InferenceModelOptions& options);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_INFERENCE_MODEL_H_
