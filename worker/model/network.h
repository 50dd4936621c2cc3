// A network ready to run: computes gradients for training and outputs for inference. It is built
// once. All calls share one arena, in which buffers are placed by lifetime, and allocate no other
// memory for tensors.
//
// Calls only queue operators. All pointers passed to a call point to the operators' memory
// (kernels/memory.h), and results are valid once the operators have run: on the CPU when the call
// returns, on a GPU after waiting for the device. The same code therefore runs on both, and its
// calls can be recorded as device graphs. network_runner.h offers whole steps on host memory.
//
// Thread rule: one call at a time. Results are a pure function of the arguments.
#ifndef PUSHPULL_WORKER_MODEL_NETWORK_H_
#define PUSHPULL_WORKER_MODEL_NETWORK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "common/model/sharding.h"
#include "common/model/variable_layout.h"
#include "kernels/memory.h"
#include "kernels/operators.h"
#include "worker/model/fused_network.h"
#include "worker/model/layer_variables.h"
#include "worker/model/network_memory.h"
#include "worker/model/objective.h"
#include "worker/model/step_result.h"

namespace pushpull {

struct NetworkOptions {
  int64_t max_batch = 1;  // samples of the largest batch
  bool training = true;   // false: no training steps, and far less memory
  // Allocates memory that the operators can address; must outlive the network.
  MemorySource* memory = HostMemory();
};

// T is the type of activations: float, Bfloat16, or double for gradient checks.
template <typename T>
class Network {
 public:
  using Parameter = ParameterOf<T>;

  // Arguments and results of a training step. All must stay valid until the step has run.
  struct Step {
    const Parameter* variables = nullptr;  // layout.total_elements()
    NetworkBatch<T> batch;
    const uint64_t* dropout_seed = nullptr;  // decides which activations dropout keeps
    Parameter* gradient = nullptr;           // written; layout.total_elements()
    ObjectiveResult* result = nullptr;       // written
  };

  // Builds a network. `operators` must outlive it.
  // INVALID_ARGUMENT: the layout does not match the network (names the first variable that
  //     differs), Network cannot compute a node of the graph (names it), or max_batch < 1.
  // RESOURCE_EXHAUSTED: as MemorySource::Allocate.
  static absl::StatusOr<std::unique_ptr<Network>> Create(const NetworkSpec& spec,
                                                         const VariableLayout& layout,
                                                         Operators<T>* operators,
                                                         const NetworkOptions& options);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // The sizes in bytes of the blocks that Create allocates from options.memory.
  // INVALID_ARGUMENT: as Create.
  static absl::StatusOr<std::vector<int64_t>> RequiredBlocks(const NetworkSpec& spec,
                                                             const VariableLayout& layout,
                                                             const Operators<T>& operators,
                                                             const NetworkOptions& options);

  // A training step is queued in parts: BeginStep, then ContinueForward until the forward pass is
  // complete, then ContinueStep until the backward pass is complete. A new BeginStep or an Infer
  // gives up a step that is not complete.

  // Sets the arguments of a step and queues nothing. Requires options.training and 1 to max_batch
  // samples (CHECKed).
  void BeginStep(const Step& step);

  // Queues the next layers of the forward pass, up to the first one that reads a variable at or
  // after element `available`. Queues the loss after the last layer. This lets the forward pass
  // start while variables are still arriving: call it with growing `available`, and last with
  // layout.total_elements().
  void ContinueForward(int64_t available);

  // The values of `available` at which ContinueForward has more layers to queue, in increasing
  // order. They are taken from 1/8, 1/4 and 1/2 of `elements` (> 0) and its multiples; the last one
  // is layout.total_elements(). The first values are close together because the first layers have
  // few variables but much to compute.
  std::vector<int64_t> ForwardStops(int64_t elements) const;

  // Queues the next part of the backward pass, which writes the gradient from its end to its front.
  // Returns the first element that is final once the queued operators have run; all elements after
  // it are final too. Call it until it returns 0. The forward pass must be queued in full
  // (CHECKed).
  //
  // With r elements that are not final yet, a call finalises at least
  // min(elements, max(r / 2, elements / 16)) more, or all r. The first parts thus have at least
  // `elements` (> 0) elements. Towards the front parts become smaller, so that little remains to be
  // sent when the backward pass ends. A part consists of whole layers, so it may be larger.
  //
  // The gradient is that of the batch's loss, without the L2 term. A classifier's loss is the mean
  // over the samples; a detector's is normalised as kernels/detection/ssd_loss.h says. Every
  // element is written:
  // - Padding and frozen variables get 0.
  // - A moving mean that is not frozen gets the batch's mean.
  // - A moving variance that is not frozen gets the batch's unbiased variance: N / max(N - 1, 1)
  //   times the variance used to normalise, with N values per channel.
  int64_t ContinueStep(int64_t elements);

  // Queues a forward pass with moving statistics and without dropout. `num_updates` is how often
  // the moving statistics have been updated (the global step); only bias-corrected batch norms use
  // it. Reads neither labels nor objects. Requires 1 to max_batch samples (CHECKed).
  void Infer(const Parameter* variables, const NetworkBatch<T>& batch, int64_t num_updates);
  // Queues the loss of the last Infer, and a classifier's top-1 and top-5 counts. Reads the labels
  // or objects of that Infer's batch. Leaves label smoothing out.
  void Evaluate(ObjectiveResult* result);

  // The outputs of the last Infer: one pointer per node of OutputNodes(spec()), each to
  // [samples, H, W, C] in the arena. A classifier has one output, its scores before the softmax.
  // Valid until the next call.
  std::vector<const T*> outputs() const;

  const NetworkSpec& spec() const { return spec_; }
  int64_t arena_bytes() const { return arena_->bytes(); }

 private:
  // The memory layout and its sizes.
  struct Plan {
    FusedNetwork fused;
    std::vector<LayerVariables> variables;  // per layer
    // Per layer: the layer and all layers before it read only variables below this element.
    std::vector<int64_t> variables_end;
    int64_t shared_elements = 0;  // of the largest gradient that a layer adds to that of others
    int64_t total_elements = 0;
    int first_trainable = 0;
    NetworkMemory training;
    NetworkMemory inference;
    int64_t arena_bytes = 0;
    int64_t workspace_bytes = 0;
    int64_t constants = 0;  // number of ones in constants_, and of zeros
  };

  // The arguments of the call in progress.
  struct Pass {
    ObjectiveResult* result = nullptr;  // null in inference
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

  int num_layers() const { return static_cast<int>(plan_.fused.layers.size()); }
  const FusedLayer& fused(int l) const { return plan_.fused.layers[l]; }
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
  InputGradient<T> InputGradientOf(int l, size_t i) const;
  std::vector<const T*> WholeValues(int l);
  Parameter* GammaGradient(int l) const;
  Parameter* BetaGradient(int l) const;
  Parameter* GradientOf(const LayerVariables& variables, const VariablePlace& place) const;

  void ForwardLayer(int l);
  void BackwardLayer(int l);
  void BackwardOperator(int l, const InputGradient<T>& dx);
  void BackwardGather(int l);
  void FinishGradient(int l);
  void PushMovingStatistics();

  const NetworkSpec spec_;
  const Plan plan_;
  Operators<T>& operators_;
  const NetworkOptions options_;
  const std::vector<bool> skip_sources_;
  const std::vector<int> last_readers_;
  std::vector<std::vector<ElementRange>> zeros_;  // per layer: ranges of the gradient to set to 0
  std::unique_ptr<Objective<T>> objective_;
  std::unique_ptr<Memory> arena_;
  std::unique_ptr<Memory> workspace_;
  std::unique_ptr<Memory> constants_;  // gamma and beta of batch norms without these variables
  std::unique_ptr<Memory> shared_;     // what a layer adds to the gradient of shared variables
  std::vector<BatchNorm<Parameter>> batch_norms_;
  Pass pass_;
  int next_forward_ = 0;    // next layer of forward; num_layers(): the loss is queued too
  int next_layer_ = -1;     // next layer of backward
  int64_t final_from_ = 0;  // first element of the gradient that is final
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_NETWORK_H_
