// A network ready to run: gradients for training, scores for inference. Built once; every call
// reuses one arena whose buffers are placed by lifetime, and allocates nothing of size.
//
// Thread rule: one call at a time; the operators may use threads of their own. Variables, gradients
// and batches belong to the caller. Results are a pure function of the arguments.
#ifndef PUSHPULL_WORKER_MODEL_NETWORK_H_
#define PUSHPULL_WORKER_MODEL_NETWORK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/model/network_spec.h"
#include "common/variable_layout.h"
#include "kernels/operators.h"
#include "worker/model/layer_variables.h"
#include "worker/model/memory_block.h"
#include "worker/model/network_memory.h"
#include "worker/model/objective.h"
#include "worker/model/step_result.h"

namespace pushpull {

struct NetworkOptions {
  int64_t max_batch = 1;  // samples of the largest batch
  bool training = true;   // false: no ForwardBackward, and far less memory
};

// T: float, or double for gradient checks.
template <typename T>
class Network {
 public:
  // Called from the calling thread with k when the elements [k, end) of the gradient have their
  // final values; k falls from call to call and the last one is 0. Must not block for long:
  // backward waits for it.
  using GradientReady = absl::FunctionRef<void(int64_t first_final_element)>;

  // `operators` must outlive the network. INVALID_ARGUMENT: the layout is not the network's (the
  // first different variable is named), a layer of the graph cannot be run (it is named), or
  // max_batch < 1.
  static absl::StatusOr<std::unique_ptr<Network>> Create(const NetworkSpec& spec,
                                                         const VariableLayout& layout,
                                                         Operators<T>* operators,
                                                         const NetworkOptions& options);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Gradient of the batch's loss (a classifier's mean over the samples; a detector's is normalised
  // by the batch's matches), without L2, written in full from its end to its front
  // (padding and frozen variables are zero). At a moving statistic that is not frozen stands the
  // batch's mean or unbiased variance (N / (N - 1) times the one used to normalise). `dropout_seed`
  // decides what dropout keeps. Both vectors hold layout.total_elements(). INVALID_ARGUMENT: 0 or
  // too many samples, a label out of range, or vectors of another size; FAILED_PRECONDITION: built
  // without training.
  absl::StatusOr<StepResult> ForwardBackward(absl::Span<const T> variables,
                                             const ImageBatch<T>& batch, uint64_t dropout_seed,
                                             absl::Span<T> gradient, GradientReady ready);

  // Loss (and hits) with moving statistics, no dropout, no label smoothing. `num_updates` is how
  // often the moving statistics have been updated (the global step); only bias-corrected batch
  // norms read it. Errors as above.
  absl::StatusOr<StepResult> Evaluate(absl::Span<const T> variables, const ImageBatch<T>& batch,
                                      int64_t num_updates);

  // Evaluate without a loss: labels and objects are not read.
  absl::Status Infer(absl::Span<const T> variables, const ImageBatch<T>& batch,
                     int64_t num_updates);

  // What the last Evaluate or Infer computed: the values of OutputLayers(spec()), each [samples, H,
  // W, C]. A classifier has one, its scores before the softmax. Valid until the next call.
  std::vector<const T*> outputs() const;

  const NetworkSpec& spec() const { return spec_; }
  int64_t arena_bytes() const { return arena_->bytes(); }

 private:
  Network(const NetworkSpec& spec, std::vector<LayerVariables> variables, int64_t total_elements,
          Operators<T>* operators, const NetworkOptions& options);

  // The arguments of the call in progress.
  struct Pass {
    const T* variables = nullptr;
    const T* images = nullptr;
    int64_t samples = 0;
    T* gradient = nullptr;  // null in inference
    uint64_t dropout_seed = 0;
    const std::vector<LayerBuffers>* buffers = nullptr;
    bool training() const { return gradient != nullptr; }
  };

  absl::Status CheckCall(absl::Span<const T> variables, const ImageBatch<T>& batch) const;
  int64_t MeasureWorkspace(int64_t samples) const;

  int num_layers() const { return static_cast<int>(spec_.layers.size()); }
  Shape ShapeOf(const FeatureShape& shape) const;
  ConvolutionShape ConvolutionOf(const LayerSpec& layer, int64_t samples) const;
  T* At(int64_t offset) const { return data_ + offset; }
  const LayerBuffers& buffers(int l) const { return (*pass_.buffers)[l]; }
  Workspace workspace() const { return {workspace_->data(), workspace_->bytes()}; }

  void Begin(const Pass& pass);
  void BindBatchNorm(int l);
  void CorrectMovingStatistics(int64_t num_updates);
  bool UsesBatchStatistics(int l) const;
  Lazy<T> Value(int l) const;
  Lazy<T> OperatorInput(int l) const;
  InputGradient<T> InputGradientOf(int l) const;
  T* GammaGradient(int l) const;
  T* BetaGradient(int l) const;

  void RunForward();
  void ForwardLayer(int l);
  void BackwardLayer(int l);
  void BackwardOperator(int l, const InputGradient<T>& dx);
  void FinishGradient(int l);

  const NetworkSpec spec_;
  const std::vector<LayerVariables> variables_;
  const int64_t total_elements_;
  Operators<T>& operators_;
  const NetworkOptions options_;
  int first_trainable_;  // layers below it have nothing to train
  NetworkMemory training_memory_;
  NetworkMemory inference_memory_;
  const std::vector<int> output_layers_;
  const std::unique_ptr<Objective<T>> objective_;
  const std::vector<bool> residual_sources_;
  const std::vector<int> last_readers_;
  std::unique_ptr<MemoryBlock> arena_;
  std::unique_ptr<MemoryBlock> workspace_;
  T* data_;
  std::vector<T> ones_;  // stand in for the gamma and beta a batch norm does not have
  std::vector<T> zeros_;
  std::vector<BatchNorm<T>> batch_norms_;
  Pass pass_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_NETWORK_H_
