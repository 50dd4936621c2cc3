// Starts training from another model's weights: train_config.fine_tune_checkpoint.
#ifndef PUSHPULL_COMMON_FINE_TUNE_RESTORE_H_
#define PUSHPULL_COMMON_FINE_TUNE_RESTORE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/file_system.h"
#include "common/fine_tune/tensor_source.h"
#include "common/variable_layout.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// What became of a variable.
struct RestoreRow {
  std::string variable;
  std::string source_name;  // of the tensor that it took, or would have taken
  bool restored = false;
  std::string reason;  // why not; empty where it was not to be restored at all
};

struct RestoreReport {
  std::string source;            // TensorSource::describe
  std::vector<RestoreRow> rows;  // one per variable, in layout order

  int num_restored() const;
  // The table for the log: what was restored (groups of names with their number), what keeps its
  // initial value, what was skipped and why.
  std::string ToString() const;
};

// The legacy trainer's rules. Of the variables under FeatureExtractor/ (all of them with
// load_all_detection_checkpoint_vars and a detection checkpoint; all of a classifier's):
//   fine_tune_checkpoint_type "detection"       the tensor of the same name
//   fine_tune_checkpoint_type "classification"  the name without "FeatureExtractor/"
// Without a type from_detection_checkpoint decides; a classifier looks for its own names first and
// then for those under FeatureExtractor/. State dicts of torchvision's MobileNetV2 (names such as
// features.0.0.weight) are recognised and their tensors transposed. A variable whose tensor is
// missing, unusable or of another shape keeps its initial value and is reported.
//
// `flat` holds the initial values, layout.total_elements(), and takes the restored ones.
// INVALID_ARGUMENT: an unknown type. FAILED_PRECONDITION: nothing at all could be restored, with
// the first names of both sides. Others: of the source.
absl::StatusOr<RestoreReport> RestoreForFineTuning(const VariableLayout& layout,
                                                   const config::TrainEvalPipelineConfig& config,
                                                   const TensorSource& source,
                                                   absl::Span<float> flat);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_FINE_TUNE_RESTORE_H_
