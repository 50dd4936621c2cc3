// Runs training steps and inference on vectors and batches in host memory. The network itself runs
// on the CPU (host_runner.h) or on a GPU (device_runner.h).
//
// Thread rule: one call at a time; the runner may use threads of its own. Variables, gradients and
// batches belong to the caller. Results are a pure function of the arguments. ForwardBackward,
// Evaluate and Infer block until their results are computed.
#ifndef PUSHPULL_WORKER_MODEL_NETWORK_RUNNER_H_
#define PUSHPULL_WORKER_MODEL_NETWORK_RUNNER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "common/model/network_spec.h"
#include "kernels/memory.h"
#include "worker/model/step_result.h"

namespace pushpull {

// The type of activations and their gradients. Variables and their gradients are always floats.
enum class Precision { kFloat, kBfloat16 };

// Returns "fp32" or "bf16".
absl::string_view PrecisionName(Precision precision);
// INVALID_ARGUMENT: there is no precision with this name.
absl::StatusOr<Precision> ParsePrecision(absl::string_view name);

struct RunnerOptions {
  int64_t max_batch = 1;  // samples of the largest batch
  bool training = true;   // false: no ForwardBackward, and far less memory
  // Batches hold packed images (ImageBatch::packed_images) in memory from AllocateImages. A GPU
  // uploads them from there, without a copy on the host, and crops, mirrors, resizes and normalises
  // them.
  bool packed_images = false;
};

// INVALID_ARGUMENT: the largest batch has more samples than kMaxDeviceSamples. That is the limit
// of a GPU. On a CPU so many samples need more memory than machines have, and the plan of its use
// takes longer the more they are.
absl::Status CheckBatch(const RunnerOptions& options);

// Describes the network input to which packed images are sampled.
ImageInput ImageInputOf(const NetworkSpec& spec);

// T is the type of variables and images: float, or double for gradient checks.
template <typename T>
class BasicNetworkRunner {
 public:
  // Called on the calling thread with k when elements [k, total_elements) of the gradient have
  // their final values. k decreases from call to call, and the last k is 0. Must not block for
  // long, because the backward pass may wait for it.
  using GradientReady = absl::FunctionRef<void(int64_t first_final_element)>;
  // Called once per step on the calling thread, before the first GradientReady. On a GPU the whole
  // step is queued by then, so this is the time for other work of the host. On the CPU the step has
  // not started yet.
  using StepUnderWay = absl::FunctionRef<void()>;

  virtual ~BasicNetworkRunner() = default;
  BasicNetworkRunner(const BasicNetworkRunner&) = delete;
  BasicNetworkRunner& operator=(const BasicNetworkRunner&) = delete;

  // Computes the gradient of the batch's loss and writes it from its end to its front;
  // Network::ContinueStep says what it contains. `dropout_seed` decides which activations dropout
  // keeps. Both vectors have layout.total_elements(); copies are fastest with memory from
  // AllocateVector.
  // INVALID_ARGUMENT: no samples or more than max_batch, no images or unreadable packed images, a
  //     label out of range, or a vector of another size.
  // FAILED_PRECONDITION: the runner was built without training.
  // Errors of the device; `ready` may have been called for part of the gradient before.
  absl::StatusOr<StepResult> ForwardBackward(absl::Span<const T> variables,
                                             const ImageBatch<T>& batch, uint64_t dropout_seed,
                                             absl::Span<T> gradient, StepUnderWay under_way,
                                             GradientReady ready);
  absl::StatusOr<StepResult> ForwardBackward(absl::Span<const T> variables,
                                             const ImageBatch<T>& batch, uint64_t dropout_seed,
                                             absl::Span<T> gradient, GradientReady ready) {
    return ForwardBackward(
        variables, batch, dropout_seed, gradient, [] {}, ready);
  }

  // Computes the loss, and a classifier's top-1 and top-5 counts, with moving statistics, without
  // dropout and without label smoothing. `num_updates` is how often the moving statistics have been
  // updated (the global step). Errors as ForwardBackward, except FAILED_PRECONDITION.
  absl::StatusOr<StepResult> Evaluate(absl::Span<const T> variables, const ImageBatch<T>& batch,
                                      int64_t num_updates);

  // Computes outputs() as Evaluate does, but no loss. Reads neither labels nor objects.
  absl::Status Infer(absl::Span<const T> variables, const ImageBatch<T>& batch,
                     int64_t num_updates);

  // Allocates host memory for packed images. For a GPU it is pinned, so that the GPU can read it
  // directly. Errors as MemorySource::Allocate.
  virtual absl::StatusOr<std::unique_ptr<Memory>> AllocateImages(int64_t bytes) = 0;
  // Allocates host memory for a vector of layout.total_elements(). For a GPU it is pinned. Errors
  // as MemorySource::Allocate.
  virtual absl::StatusOr<std::unique_ptr<Memory>> AllocateVector() = 0;

  // The next five functions are about hints: a GPU can start to copy and compute before the call
  // that needs the data. "The next call" is the next ForwardBackward, Evaluate or Infer. Its result
  // is the same without hints and after wrong ones. On the CPU hints do nothing.

  // Starts the upload of the packed images of the next call's batch. They must not change until
  // that call, another StageImages or CancelBatch has returned. From the callbacks of a step it
  // may be called too, for the call after that step.
  virtual void StageImages(const PackedImages& /*packed_images*/) {}
  // Cancels the batches of the last StageImages and StageStep. Blocks until the device has
  // stopped reading them.
  virtual void CancelBatch() {}
  // Blocks until the device has done all that was queued, hints included, and forgets them. Has to
  // be called before a runner is destroyed whose device goes on with another one: queued work reads
  // and writes its memory.
  virtual void Finish() {}
  // Says that elements [first, end) of `variables` have arrived, and starts their upload. Ranges
  // must follow one another from 0 on without gaps. After the last range, calls with this vector
  // use what was uploaded. The vector must therefore not change until `first` = 0 is passed again,
  // for this or another vector. Must not be called from the callbacks of a step.
  virtual void StageVariables(absl::Span<const T> /*variables*/, int64_t /*first*/,
                              int64_t /*end*/) {}
  // Announces the arguments of the next ForwardBackward, so that its forward pass can start while
  // its variables are being staged. Call it before StageVariables passes their first range. The
  // batch must not change until the next call or CancelBatch has returned. Arguments that
  // ForwardBackward would refuse are ignored.
  void StageStep(absl::Span<const T> variables, const ImageBatch<T>& batch, uint64_t dropout_seed);

  // The outputs of the last Evaluate or Infer, in host memory: one pointer per node of
  // OutputNodes(spec()), each to [samples, H, W, C]. A classifier has one output, its scores
  // before the softmax. Valid until the next call.
  virtual std::vector<const T*> outputs() const = 0;

  // Size in bytes of the network's arena, which holds the activations.
  virtual int64_t arena_bytes() const = 0;

  const NetworkSpec& spec() const { return spec_; }

 protected:
  BasicNetworkRunner(const NetworkSpec& spec, int64_t total_elements, const RunnerOptions& options)
      : spec_(spec),
        image_input_(ImageInputOf(spec)),
        total_elements_(total_elements),
        options_(options) {}

  int64_t total_elements() const { return total_elements_; }
  const RunnerOptions& options() const { return options_; }
  const ImageInput& image_input() const { return image_input_; }

 private:
  // Implement StageStep, ForwardBackward, Infer and Evaluate; the arguments have been checked.
  virtual void BeginStaged(const T* /*variables*/, const ImageBatch<T>& /*batch*/,
                           uint64_t /*dropout_seed*/) {}
  virtual absl::StatusOr<ObjectiveResult> RunStep(const T* variables, const ImageBatch<T>& batch,
                                                  uint64_t dropout_seed, T* gradient,
                                                  StepUnderWay under_way, GradientReady ready) = 0;
  virtual absl::Status RunInference(const T* variables, const ImageBatch<T>& batch,
                                    int64_t num_updates) = 0;
  virtual absl::StatusOr<ObjectiveResult> RunEvaluation(const T* variables,
                                                        const ImageBatch<T>& batch,
                                                        int64_t num_updates) = 0;

  absl::Status CheckCall(absl::Span<const T> variables, const ImageBatch<T>& batch) const;
  absl::Status CheckTargets(const ImageBatch<T>& batch) const;

  const NetworkSpec spec_;
  const ImageInput image_input_;
  const int64_t total_elements_;
  const RunnerOptions options_;
};

using NetworkRunner = BasicNetworkRunner<float>;

// The objects of all samples of a batch in one list, as NetworkBatch holds them.
struct FlatObjects {
  std::vector<LabeledBox> objects;
  std::vector<int32_t> first;  // [samples + 1], as NetworkBatch::first_object

  // Copies the objects. `spans` has one entry per sample; null means that there are no objects.
  void Assign(const absl::Span<const LabeledBox>* spans, int64_t samples);
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_NETWORK_RUNNER_H_
