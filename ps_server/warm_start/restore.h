// Warm start: initialises the variables with the weights of another model
// (train_config.fine_tune_checkpoint). Keeps no state; blocks only in TensorSource::Read.
#ifndef PUSHPULL_PS_SERVER_WARM_START_RESTORE_H_
#define PUSHPULL_PS_SERVER_WARM_START_RESTORE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/base/file_system.h"
#include "common/model/variable_layout.h"
#include "protos/pipeline.pb.h"
#include "ps_server/warm_start/tensor_source.h"

namespace pushpull {

// The outcome for one variable.
struct RestoreRow {
  std::string variable;
  std::string source_name;  // the tensor that it takes; empty if the rules select none
  bool restored = false;
  std::string reason;  // why the selected tensor was not restored; empty if none was selected
};

struct RestoreReport {
  std::string source;              // TensorSource::describe
  std::vector<RestoreRow> rows;    // one per variable, in layout order
  std::vector<std::string> notes;  // sentences on what differs from the source's network

  int num_restored() const;
  // Returns a text for the log: how many variables of each group of names were restored, how many
  // of each group were not selected, each variable that was skipped, with the reason, and the
  // notes.
  std::string ToString() const;
};

// Restores variables from `source` by the rules of TensorFlow's legacy object detection trainer.
//
// A detector selects its variables under FeatureExtractor/. With load_all_detection_checkpoint_vars
// and a detection checkpoint it selects all variables. The tensor's name depends on
// fine_tune_checkpoint_type (if that is empty, on from_detection_checkpoint):
//   "detection"       the name of the variable
//   "classification"  the name without "FeatureExtractor/"
//   "full"            the name of the variable; all variables are selected
// A classifier selects all variables, by their names or, if the source does not have the name, by
// the name after "FeatureExtractor/".
//
// A state dict of torchvision's MobileNetV2, MobileNetV3, ResNet or VGG without batch norm (names
// such as features.0.0.weight) is recognised; its names are translated and its tensors transposed.
// Only variables that it has are selected.
//
// The first layer of torchvision's networks, and of VGG and ResNet v1 from TensorFlow, is adapted
// to our pixel values (pixel_values.h).
//
// A variable whose tensor is missing, unusable or of another shape keeps its initial value and is
// reported. `flat`, layout.total_elements() long, holds the initial values and receives the
// restored ones.
//
// INVALID_ARGUMENT: an unknown type. FAILED_PRECONDITION: nothing could be restored (the message
// has the first names of both sides, and why they do not fit), a moving statistic was whose batch
// norm has bias_corrected_moving_statistics, or the source has a deeper network (depth_check.h).
// DATA_LOSS: a value is not finite. Also returns the errors of source.Read.
absl::StatusOr<RestoreReport> RestoreForWarmStart(const VariableLayout& layout,
                                                  const config::TrainEvalPipelineConfig& config,
                                                  const TensorSource& source,
                                                  absl::Span<float> flat);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WARM_START_RESTORE_H_
