// The interface of what computes contributions: the C++ worker's network on its training data
// (worker/train/network_gradient_source.h), a program that uses the client library
// (program_gradient_source.h), or a simple function in tests.
#ifndef PUSHPULL_WORKER_CLIENT_GRADIENT_SOURCE_H_
#define PUSHPULL_WORKER_CLIENT_GRADIENT_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/wire/batch_division.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// Alignment of vectors in bytes, as common/optimizer/state_vectors.h requires.
inline constexpr size_t kVectorAlignment = 64;

// Returns a zeroed vector with this alignment. RESOURCE_EXHAUSTED: there is no memory for it.
absl::StatusOr<std::shared_ptr<float>> NewVector(int64_t elements);

struct GradientResult {
  uint64_t samples = 0;
  double loss = 0.0;  // total loss with the L2 term, mean over the samples
  std::vector<ps::Metric> metrics;
};

// Thread rule: all calls come from one thread. In the calls, `position` is the number of a training
// step, counted from 0, in synchronous mode, and the number of a batch of the replica in
// asynchronous mode. It selects the data, together with `replica`, whose data are meant.
class GradientSource {
 public:
  virtual ~GradientSource() = default;

  // Allocates a zeroed vector of weights or gradients to call Compute with, aligned to
  // kVectorAlignment. It may outlive the source.
  virtual absl::StatusOr<std::shared_ptr<float>> AllocateVector(int64_t elements) {
    return NewVector(elements);
  }

  // Returns the number of training images, which train_input_reader.num_epochs counts.
  virtual uint64_t num_images() const = 0;

  // StageCompute and StageWeights are hints: Compute can start while its weights are still
  // arriving. The result of Compute is the same without them and after wrong ones.

  // Announces the arguments of the next Compute. Call it before the first StageWeights for
  // `weights`. Never waits for data: if they are not ready, the hint has no effect.
  virtual void StageCompute(uint64_t /*position*/, uint32_t /*replica*/,
                            absl::Span<const float> /*weights*/) {}
  // Says that elements [first, end) of the weights of a coming Compute have arrived. Ranges follow
  // one another from 0 on. After the last range the weights must not change until `first` = 0 is
  // passed again.
  virtual void StageWeights(absl::Span<const float> /*weights*/, int64_t /*first*/,
                            int64_t /*end*/) {}

  // Says that `weights`, of `version`, have been pulled. They are the argument of every Compute
  // until the next call, and do not change until then.
  virtual void NoteWeights(uint64_t /*version*/, absl::Span<const float> /*weights*/) {}

  // Synchronous mode: says which part of each global batch the replica has in the following calls,
  // until the next NotePart for the replica. Called before the first of them. A decorator passes it
  // on. The default ignores it, for sources that compute without data.
  virtual void NotePart(uint32_t /*replica*/, const BatchPart& /*part*/) {}

  // Blocks until the data of (position, replica) are ready for the Compute with the same arguments.
  // Separate from Compute so that time spent waiting for data is not counted as computing. The
  // default has nothing to wait for.
  virtual absl::Status LoadInput(uint64_t /*position*/, uint32_t /*replica*/) {
    return absl::OkStatus();
  }

  // Calls `load`, which waits for data, and returns its result. The time is counted as waiting for
  // input.
  using AwaitInputFn = std::function<absl::Status(absl::FunctionRef<absl::Status()> load)>;
  // Gives the function by which the source is to wait for data within Compute. It belongs to the
  // caller of Compute, and is called in that thread. The default ignores it, for sources that wait
  // for nothing there after a LoadInput.
  virtual void AwaitInputBy(AwaitInputFn /*await_input*/) {}

  // Computes the contribution of replica `replica` on the data of `position`, at `weights`. Blocks
  // until done, and calls LoadInput if the caller has not. Writes `gradient`, in the layout of
  // `weights`, from its end to its front, and calls `advance(k)` when elements [k, size) are final;
  // any thread may call it, one at a time.
  // The gradient is that of the loss without the L2 term, a mean over the samples; moving
  // statistics get the batch's statistics. The same arguments give the same bits.
  virtual absl::StatusOr<GradientResult> Compute(uint64_t position, uint32_t replica,
                                                 absl::Span<const float> weights,
                                                 absl::Span<float> gradient,
                                                 absl::FunctionRef<void(int64_t)> advance) = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_GRADIENT_SOURCE_H_
