// Runs a network in inference mode over the evaluation data set, batch by batch. All evaluations
// share this class.
#ifndef PUSHPULL_WORKER_EVAL_EVALUATION_RUN_H_
#define PUSHPULL_WORKER_EVAL_EVALUATION_RUN_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/model/network_spec.h"
#include "common/model/variable_layout.h"
#include "protos/pipeline.pb.h"
#include "worker/data/batch_objects.h"
#include "worker/data/image_source.h"
#include "worker/data/input_pipeline.h"
#include "worker/model/compute.h"
#include "worker/model/network_runner.h"

namespace pushpull {

// Returns how many of the `size` examples of eval_input_reader are evaluated: num_examples, or all
// if that is unset or larger. Logs if these are not the same.
int64_t NumEvaluated(const config::EvalConfig& config, int64_t size);

// Not thread-safe.
class EvaluationRun {
 public:
  // Arguments and errors as MakeEvaluation. Reads each image that is evaluated once, and logs which
  // are damaged.
  static absl::StatusOr<std::unique_ptr<EvaluationRun>> Create(
      const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
      const ComputeOptions& compute, const std::atomic<bool>& stop);

  const NetworkSpec& spec() const { return spec_; }
  const VariableLayout& layout() const { return layout_; }
  int64_t num_examples() const { return num_examples_; }
  const ImageSource& source() const { return *source_; }
  const NetworkRunner& network() const { return *network_; }
  ThreadPool* pool() { return compute_.pool(); }
  // As Evaluation::UnsettledShare.
  double UnsettledShare(int64_t num_updates) const;

  // Evaluates all batches in order and calls use(input, result) after each one; during that call,
  // network().outputs() are those of the batch. Then calls progress(done, num_examples()), unless
  // it is empty, with the number of examples that are evaluated. Stops at the first error,
  // including one of `use`. CANCELLED: `stop` became true; it is read before each batch.
  absl::Status ForEachBatch(
      absl::Span<const float> variables, int64_t num_updates, const std::atomic<bool>& stop,
      const std::function<void(int64_t done, int64_t total)>& progress,
      absl::FunctionRef<absl::Status(const InputBatch& input, const StepResult& result)> use);

 private:
  EvaluationRun(NetworkSpec spec, VariableLayout layout, const ComputeOptions& compute);

  const NetworkSpec spec_;
  const VariableLayout layout_;
  int64_t num_examples_ = 0;
  ComputeResources compute_;
  std::unique_ptr<NetworkRunner> network_;
  std::unique_ptr<ImageSource> source_;
  std::unique_ptr<InputPipeline> input_;
  BatchObjects objects_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_EVALUATION_RUN_H_
