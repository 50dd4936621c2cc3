// A network ready to run: gradients for training, scores for inference. Built once; every call
// reuses one arena whose buffers are placed by lifetime, and allocates nothing of size.
//
// All pointers of a call are to the operators' memory (kernels/memory.h), and a call only queues
// operators: what it computes is there when they are done. So the same network runs on the CPU and
// on a GPU, and its calls can be recorded; network_runner.h makes steps from host memory of them.
//
// Thread rule: one call at a time. Results are a pure function of the arguments.
#ifndef PUSHPULL_WORKER_MODEL_NETWORK_H_
#define PUSHPULL_WORKER_MODEL_NETWORK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "common/sharding.h"
#include "common/variable_layout.h"
#include "kernels/memory.h"
#include "kernels/operators.h"
#include "worker/model/layer_variables.h"
#include "worker/model/network_memory.h"
#include "worker/model/objective.h"
#include "worker/model/step_result.h"

namespace pushpull {

struct NetworkOptions {
  int64_t max_batch = 1;                // samples of the largest batch
  bool training = true;                 // false: no steps, and far less memory
  MemorySource* memory = HostMemory();  // the operators'; must outlive the network
};

// T: float, Bfloat16, or double for gradient checks.
template <typename T>
class Network {
 public:
  using Parameter = ParameterOf<T>;

  // A training step. Vectors hold layout.total_elements().
  struct Step {
    const Parameter* variables = nullptr;
    NetworkBatch<T> batch;
    const uint64_t* dropout_seed = nullptr;  // decides what dropout keeps
    Parameter* gradient = nullptr;
    ObjectiveResult* result = nullptr;
  };

  // `operators` must outlive the network. INVALID_ARGUMENT: the layout is not the network's (the
  // first different variable is named), a layer of the graph cannot be run (it is named), or
  // max_batch < 1. RESOURCE_EXHAUSTED of Allocate.
  static absl::StatusOr<std::unique_ptr<Network>> Create(const NetworkSpec& spec,
                                                         const VariableLayout& layout,
                                                         Operators<T>* operators,
                                                         const NetworkOptions& options);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // What Create takes of options.memory: the size of each block.
  static absl::StatusOr<std::vector<int64_t>> RequiredBlocks(const NetworkSpec& spec,
                                                             const VariableLayout& layout,
                                                             const Operators<T>& operators,
                                                             const NetworkOptions& options);

  // Begins a step, of which nothing is queued yet. Only with options.training; 1 to max_batch
  // samples.
  void BeginStep(const Step& step);
  // Queues so much of the step's forward pass as reads no variable from element `available` on, and
  // the loss with the last of it. To be called until `available` is layout.total_elements().
  void ContinueForward(int64_t available);
  // Where ContinueForward finds more to queue when it is called with 1/8, 1/4 and 1/2 of
  // `elements` (> 0) and its growing multiples, the last one being layout.total_elements().
  std::vector<int64_t> ForwardStops(int64_t elements) const;
  // Queues so much of the step's backward pass that at least `elements` (> 0) more of the gradient,
  // towards its front half of what is left (but not less than 1/16 of `elements`), or all of them,
  // are written: those from the returned element to the end. To be called until it
  // returns 0. The gradient is that of the batch's loss (a classifier's mean over the samples; a
  // detector's is normalised by the batch's matches), without L2, written in full (padding and
  // frozen variables are zero). At a moving statistic that is not frozen stands the batch's mean or
  // unbiased variance (N / (N - 1) times the one used to normalise).
  int64_t ContinueStep(int64_t elements);

  // Outputs with moving statistics and without dropout. `num_updates` is how often the moving
  // statistics have been updated (the global step); only bias-corrected batch norms read it.
  // Neither labels nor objects are read.
  void Infer(const Parameter* variables, const NetworkBatch<T>& batch, int64_t num_updates);
  // The loss (and hits) of what Infer was called with last, without label smoothing.
  void Evaluate(ObjectiveResult* result);

  // What the last Infer computed: the values of OutputLayers(spec()), each [samples, H, W, C]. A
  // classifier has one, its scores before the softmax. Valid until the next call.
  std::vector<const T*> outputs() const;

  const NetworkSpec& spec() const { return spec_; }
  int64_t arena_bytes() const { return arena_->bytes(); }

 private:
  // Where everything lies and how much of it there is.
  struct Plan {
    std::vector<LayerVariables> variables;
    // Per layer: it and those before it read no variable from this element on.
    std::vector<int64_t> variables_end;
    int64_t total_elements = 0;
    int first_trainable = 0;
    NetworkMemory training;
    NetworkMemory inference;
    int64_t arena_bytes = 0;
    int64_t workspace_bytes = 0;
    int64_t constants = 0;  // ones and zeros, this many each
  };

  // The arguments of the call in progress.
  struct Pass {
    ObjectiveResult* result = nullptr;  // of a step
    const Parameter* variables = nullptr;
    NetworkBatch<T> batch;
    const uint64_t* dropout_seed = nullptr;
    Parameter* gradient = nullptr;  // null in inference
    const std::vector<LayerBuffers>* buffers = nullptr;
    bool training() const { return gradient != nullptr; }
  };

  Network(const NetworkSpec& spec, Plan plan, Operators<T>* operators,
          const NetworkOptions& options);
  static absl::StatusOr<Plan> MakePlan(const NetworkSpec& spec, const VariableLayout& layout,
                                       const Operators<T>& operators,
                                       const NetworkOptions& options);
  absl::Status AllocateMemory();

  int num_layers() const { return static_cast<int>(spec_.layers.size()); }
  Shape ShapeOf(const FeatureShape& shape) const;
  char* Place(int64_t offset) const { return static_cast<char*>(arena_->data()) + offset; }
  T* Values(int64_t offset) const { return reinterpret_cast<T*>(Place(offset)); }
  Parameter* Sums(int64_t offset) const { return reinterpret_cast<Parameter*>(Place(offset)); }
  const LayerBuffers& buffers(int l) const { return (*pass_.buffers)[l]; }
  Workspace workspace() const { return {workspace_->data(), workspace_->bytes()}; }

  void Begin(const Pass& pass);
  void RunObjective();
  void BindBatchNorm(int l);
  void CorrectMovingStatistics(int64_t num_updates);
  bool UsesBatchStatistics(int l) const;
  Lazy<T> Value(int l) const;
  Lazy<T> OperatorInput(int l) const;
  InputGradient<T> InputGradientOf(int l) const;
  Parameter* GammaGradient(int l) const;
  Parameter* BetaGradient(int l) const;

  void ForwardLayer(int l);
  void BackwardLayer(int l);
  void BackwardOperator(int l, const InputGradient<T>& dx);
  void FinishGradient(int l);

  const NetworkSpec spec_;
  const Plan plan_;
  Operators<T>& operators_;
  const NetworkOptions options_;
  const std::vector<int> output_layers_;
  const std::vector<bool> residual_sources_;
  const std::vector<int> last_readers_;
  std::vector<std::vector<ElementRange>> zeros_;  // per layer: of the gradient, what stays zero
  std::unique_ptr<Objective<T>> objective_;
  std::unique_ptr<Memory> arena_;
  std::unique_ptr<Memory> workspace_;
  std::unique_ptr<Memory> constants_;  // stand in for the gamma and beta a batch norm does not have
  std::vector<BatchNorm<Parameter>> batch_norms_;
  Pass pass_;
  int next_forward_ = 0;    // layer; behind the last one: the loss is queued too
  int next_layer_ = -1;     // of backward
  int64_t final_from_ = 0;  // of the gradient
};

// The shape of a layer's operator on so many samples.
ConvolutionShape ConvolutionOf(const LayerSpec& layer, int64_t samples);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_NETWORK_H_
