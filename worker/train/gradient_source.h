// Where contributions come from: the network on its data, or a toy in tests.
#ifndef PUSHPULL_WORKER_TRAIN_GRADIENT_SOURCE_H_
#define PUSHPULL_WORKER_TRAIN_GRADIENT_SOURCE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "protos/parameter_server.pb.h"

namespace pushpull {

struct GradientResult {
  uint64_t samples = 0;
  double loss = 0.0;  // total, mean over the samples
  std::vector<ps::Metric> metrics;
};

// Used by one thread.
class GradientSource {
 public:
  virtual ~GradientSource() = default;

  // Zeroed memory for a vector of weights or gradients that Compute is to be called with. It may
  // outlive the source.
  virtual absl::StatusOr<std::shared_ptr<float>> AllocateVector(int64_t elements) {
    return std::shared_ptr<float>(new float[elements](), std::default_delete<float[]>());
  }

  // Hints, so that a Compute can begin while its weights still arrive; results are the same without
  // them and with others than what comes.
  //
  // The arguments of the next Compute, told before the first of its weights. Does not wait for
  // data: if they are not there, the hint is lost.
  virtual void StageCompute(uint64_t /*position*/, uint32_t /*slot*/,
                            absl::Span<const float> /*weights*/) {}
  // The elements [first, end) of the weights of a coming Compute are there, told from 0 on. Once
  // all are, they do not change until 0 is told again.
  virtual void StageWeights(absl::Span<const float> /*weights*/, int64_t /*first*/,
                            int64_t /*end*/) {}

  // Blocks until the data of (position, slot) are there, for the Compute of the same that follows:
  // a step of its own, so that waiting for data is not taken for computing. By default there is
  // nothing to wait for.
  virtual absl::Status LoadInput(uint64_t /*position*/, uint32_t /*slot*/) {
    return absl::OkStatus();
  }

  // The contribution of `slot` to data position `position` (the step's number, counted from 0),
  // computed at `weights`. Writes `gradient` (same layout, mean over the samples, without L2; batch
  // statistics in the place of moving statistics) from its end to its front and calls `advance(k)`
  // when elements [k, end) are final. The same arguments give the same bits. Loads its data itself
  // if LoadInput has not.
  virtual absl::StatusOr<GradientResult> Compute(uint64_t position, uint32_t slot,
                                                 absl::Span<const float> weights,
                                                 absl::Span<float> gradient,
                                                 absl::FunctionRef<void(int64_t)> advance) = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_GRADIENT_SOURCE_H_
