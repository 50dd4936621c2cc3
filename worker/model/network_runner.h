// Training steps and inference between vectors and batches in host memory, wherever the network
// itself runs: host_runner.h on the CPU, device_runner.h on a GPU.
//
// Thread rule: one call at a time; the runner may use threads of its own. Variables, gradients and
// batches belong to the caller. Results are a pure function of the arguments.
#ifndef PUSHPULL_WORKER_MODEL_NETWORK_RUNNER_H_
#define PUSHPULL_WORKER_MODEL_NETWORK_RUNNER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/model/network_spec.h"
#include "kernels/memory.h"
#include "worker/model/step_result.h"

namespace pushpull {

struct RunnerOptions {
  int64_t max_batch = 1;  // samples of the largest batch
  bool training = true;   // false: no ForwardBackward, and far less memory
  // Batches come as ImageBatch::pictures, in memory of AllocateImages: a GPU crops, mirrors,
  // resizes and normalises them itself, and nothing is copied on the host.
  bool pictures = false;
};

// What the network reads of packed pictures.
PictureInput PictureInputOf(const NetworkSpec& spec);

// T: float, or double for gradient checks.
template <typename T>
class BasicNetworkRunner {
 public:
  // Called from the calling thread with k when the elements [k, end) of the gradient have their
  // final values; k falls from call to call and the last one is 0. Must not block for long:
  // backward may wait for it.
  using GradientReady = absl::FunctionRef<void(int64_t first_final_element)>;
  // Called once, from the calling thread: the step computes by itself from here on, or is about to.
  // The time for what else a step needs.
  using StepUnderWay = absl::FunctionRef<void()>;

  virtual ~BasicNetworkRunner() = default;
  BasicNetworkRunner(const BasicNetworkRunner&) = delete;
  BasicNetworkRunner& operator=(const BasicNetworkRunner&) = delete;

  // Gradient of the batch's loss as Network::ContinueStep writes it, from its end to its front.
  // `dropout_seed` decides what dropout keeps. Both vectors hold layout.total_elements(), best in
  // memory of AllocateVector.
  // INVALID_ARGUMENT: 0 or too many samples, a label out of range, or vectors of another size;
  // FAILED_PRECONDITION: built without training; errors of the device, after which part of the
  // gradient may have been announced.
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

  // Loss (and hits) with moving statistics, no dropout, no label smoothing. `num_updates` is how
  // often the moving statistics have been updated (the global step). Errors as above.
  absl::StatusOr<StepResult> Evaluate(absl::Span<const T> variables, const ImageBatch<T>& batch,
                                      int64_t num_updates);

  // Evaluate without a loss: labels and objects are not read.
  absl::Status Infer(absl::Span<const T> variables, const ImageBatch<T>& batch,
                     int64_t num_updates);

  // Memory of the host for images that the runner reads where they are. Errors as
  // MemorySource::Allocate.
  virtual absl::StatusOr<std::unique_ptr<Memory>> AllocateImages(int64_t bytes) = 0;
  // Memory of the host for a vector of layout.total_elements(), which a device copies from and to
  // by itself.
  virtual absl::StatusOr<std::unique_ptr<Memory>> AllocateVector() = 0;

  // Hints, so that a device has what the next call brings before it is called; without them, or
  // with others than what the call brings, results are the same.
  //
  // The pictures of the next call's batch, which must not change until that call or a call of this
  // has returned. May be called while a step is under way (from its callbacks).
  virtual void StagePictures(const PackedPictures& /*pictures*/) {}
  // Takes back the last StagePictures and StageStep: nothing of their batches is read any more when
  // it returns.
  virtual void TakeBatchBack() {}
  // The elements [first, end) of `variables` are there: to be told from 0 on without gaps. Once the
  // last has been, calls with this very vector take it as it was; it must not change until 0 is
  // told again, of this vector or another, and no call is under way.
  virtual void StageVariables(absl::Span<const T> /*variables*/, int64_t /*first*/,
                              int64_t /*end*/) {}
  // The arguments of the next ForwardBackward, which may so begin while its variables are still
  // being staged; the first of them has not been. Nothing of the batch may change until that call,
  // another one or TakeBatchBack has returned. Arguments that ForwardBackward would refuse are
  // ignored.
  void StageStep(absl::Span<const T> variables, const ImageBatch<T>& batch, uint64_t dropout_seed);

  // What the last Evaluate or Infer computed: the values of OutputLayers(spec()), each [samples, H,
  // W, C]. A classifier has one, its scores before the softmax. Valid until the next call.
  virtual std::vector<const T*> outputs() const = 0;

  // Bytes of activations.
  virtual int64_t arena_bytes() const = 0;

  const NetworkSpec& spec() const { return spec_; }

 protected:
  BasicNetworkRunner(const NetworkSpec& spec, int64_t total_elements, const RunnerOptions& options)
      : spec_(spec),
        picture_input_(PictureInputOf(spec)),
        total_elements_(total_elements),
        options_(options) {}

  int64_t total_elements() const { return total_elements_; }
  const RunnerOptions& options() const { return options_; }
  const PictureInput& picture_input() const { return picture_input_; }

 private:
  // The calls above once their arguments have been checked.
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
  const PictureInput picture_input_;
  const int64_t total_elements_;
  const RunnerOptions options_;
};

using NetworkRunner = BasicNetworkRunner<float>;

// The objects of a batch one after another.
struct FlatObjects {
  std::vector<LabeledBox> objects;
  std::vector<int32_t> first;  // per sample, and the end

  // `spans` may be null: no objects.
  void Assign(const absl::Span<const LabeledBox>* spans, int64_t samples);
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_NETWORK_RUNNER_H_
