// A network for inference and the evaluation data set: what every evaluation is made of.
#ifndef PUSHPULL_WORKER_EVAL_EVALUATION_RUN_H_
#define PUSHPULL_WORKER_EVAL_EVALUATION_RUN_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/model/network_spec.h"
#include "common/variable_layout.h"
#include "protos/pipeline.pb.h"
#include "worker/data/batch_objects.h"
#include "worker/data/image_source.h"
#include "worker/data/input_pipeline.h"
#include "worker/model/compute.h"
#include "worker/model/network_runner.h"

namespace pushpull {

// One caller at a time.
class EvaluationRun {
 public:
  // As MakeEvaluation.
  static absl::StatusOr<std::unique_ptr<EvaluationRun>> Create(
      const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
      const ComputeOptions& compute);

  const NetworkSpec& spec() const { return spec_; }
  const VariableLayout& layout() const { return layout_; }
  int64_t num_examples() const { return num_examples_; }
  const ImageSource& source() const { return *source_; }
  const NetworkRunner& network() const { return *network_; }
  ThreadPool* pool() { return compute_.pool(); }
  double UnsettledShare(int64_t num_updates) const;

  // Calls use(input, result) after each batch, in order; the network's outputs are those of the
  // batch. CANCELLED when *stop has become true.
  absl::Status ForEachBatch(
      absl::Span<const float> variables, int64_t num_updates, const std::atomic<bool>& stop,
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
