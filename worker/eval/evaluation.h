// The interface through which the evaluator measures a checkpoint. The implementations are in
// classifier_evaluation.h and detection_evaluation.h; MakeEvaluation chooses one by the model.
#ifndef PUSHPULL_WORKER_EVAL_EVALUATION_H_
#define PUSHPULL_WORKER_EVAL_EVALUATION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/base/file_system.h"
#include "common/model/variable_layout.h"
#include "common/trace/event_writer.h"
#include "protos/pipeline.pb.h"
#include "worker/model/compute.h"

namespace pushpull {

// An image for TensorBoard.
struct EvaluationImage {
  std::string tag;
  int height = 0;
  int width = 0;
  std::string png;  // a PNG file, RGB
};

struct EvaluationReport {
  // The metrics with their TensorBoard tags; NaN if a metric is undefined. The checkpoint with the
  // highest value of the first metric is the best one.
  std::vector<ScalarSummary> scalars;
  int64_t examples = 0;     // number of evaluated examples
  std::string explanation;  // a warning for the user, or empty
  std::vector<EvaluationImage> images;
  // The error of writing the file of eval_config.export_path, which then keeps its old contents.
  absl::Status export_status;
};

// Not thread-safe. Reads images on internal threads; computes on internal threads or on a GPU.
class Evaluation {
 public:
  virtual ~Evaluation() = default;

  // Called after each batch: `done` of `total` examples are evaluated.
  using ProgressFn = std::function<void(int64_t done, int64_t total)>;

  // The layout of the variables that Run takes.
  virtual const VariableLayout& layout() const = 0;

  // Returns the weight, 0 to 1, that the initial values still have in the moving statistics of
  // batch normalisation after `num_updates` updates. Returns 0 if the statistics are
  // bias-corrected or frozen.
  virtual double UnsettledShare(int64_t num_updates) const = 0;

  // Evaluates the variables, layout().total_elements() floats, whose moving statistics have been
  // updated `num_updates` times. Blocks until all examples are evaluated. CANCELLED: `stop` became
  // true; it is read before each batch. Other errors are those of the data set or of the device.
  // `progress` may be empty; it is called on the calling thread.
  virtual absl::StatusOr<EvaluationReport> Run(absl::Span<const float> variables,
                                               int64_t num_updates, const std::atomic<bool>& stop,
                                               const ProgressFn& progress) = 0;
};

// Makes the evaluation for the config's model, opens the data set of eval_input_reader, and reads
// each image that is evaluated once, to see whether it can be decoded. Blocks until done. The
// evaluation uses eval_config.num_examples examples, or all if that is unset or there are fewer: of
// a detector's the first ones, of a classifier's such that are spread evenly over the data set. A
// detector's export is written to `files`, which must outlive the evaluation, as must
// compute.device. `config` must be valid. CANCELLED: `stop` became true; it is read only while the
// data set is opened and its images are read. Other errors as OpenImageSource and
// ImageSource::Check, and those of an export_path at which no file can be created; one that may
// pass (passing_error.h) is only logged.
absl::StatusOr<std::unique_ptr<Evaluation>> MakeEvaluation(
    const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
    const ComputeOptions& compute, FileSystem* files, const std::atomic<bool>& stop);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_EVALUATION_H_
