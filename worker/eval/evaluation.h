// What the evaluator runs on a checkpoint. Implementations: classifier_evaluation.h,
// detection_evaluation.h; MakeEvaluation chooses by the model.
#ifndef PUSHPULL_WORKER_EVAL_EVALUATION_H_
#define PUSHPULL_WORKER_EVAL_EVALUATION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/event_writer.h"
#include "common/file_system.h"
#include "common/variable_layout.h"
#include "protos/pipeline.pb.h"
#include "worker/model/compute.h"

namespace pushpull {

// For TensorBoard.
struct EvaluationImage {
  std::string tag;
  int height = 0;
  int width = 0;
  std::string png;  // RGB
};

struct EvaluationReport {
  // Under their TensorBoard tags. The first one decides which checkpoint is the best, higher is
  // better; NaN where a metric is not defined.
  std::vector<ScalarSummary> scalars;
  int64_t examples = 0;
  std::string explanation;  // a warning for the user; empty: none
  std::vector<EvaluationImage> images;
};

// One caller at a time; threads of its own read images and compute.
class Evaluation {
 public:
  virtual ~Evaluation() = default;

  virtual const VariableLayout& layout() const = 0;

  // The share of their initial value that the moving statistics still hold after so many updates; 0
  // where they are corrected for it, or frozen.
  virtual double UnsettledShare(int64_t num_updates) const = 0;

  // `variables` holds layout().total_elements(). CANCELLED within a batch of *stop becoming true.
  // Other errors: of the data set.
  virtual absl::StatusOr<EvaluationReport> Run(absl::Span<const float> variables,
                                               int64_t num_updates,
                                               const std::atomic<bool>& stop) = 0;
};

// Opens eval_input_reader; blocks while it is read. The first eval_config.num_examples examples are
// used, all of them if there are fewer. `files` takes what a detector exports and must outlive the
// evaluation. Errors as BuildNetworkSpec and OpenImageSource.
absl::StatusOr<std::unique_ptr<Evaluation>> MakeEvaluation(
    const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
    const ComputeOptions& compute, FileSystem* files);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_EVALUATION_H_
