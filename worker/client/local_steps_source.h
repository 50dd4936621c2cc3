// clang-format off
// Local steps: a GradientSource that computes a round of mini-batches with another GradientSource.
//
// The clone updates weights of its own after each mini-batch, by train_config.optimizer. What it
// contributes is the difference. With H local steps, pulled weights w of version v, and g_h, the
// other source's gradient at position p * H + h:
//
//   u_0     = w, and all slots have their initial values
//   u_{h+1} = update number h + 1 of the optimizer, of u_h by g_h, at the learning rate of
//             update v * H + h                                        h = 0 .. H - 1 (apply_pass.h)
//
//   contribution of a trainable variable    w - u_H                   0 if it is frozen
//   contribution of a moving statistic      the mean of its g_h, weighted as its decay d does:
//                                           sum of d^(H-1-h) * g_h / sum of d^(H-1-h)
//
// L2 weights, multipliers and clipping act in these updates, so the server leaves them out. It
// moves a statistic once, by d^H (LayoutOfLocalSteps), which makes it u_H if there is one clone.
// u_H itself is not sent: encodings would round the whole value in each round, so that small
// changes would be lost for good, and in asynchronous mode it would undo the rounds of other clones.
// Because no slot outlives a round, the contribution is a function of weights, version, position
// and replica: any clone can compute it, and there is nothing to save.
// clang-format on
#ifndef PUSHPULL_WORKER_CLIENT_LOCAL_STEPS_SOURCE_H_
#define PUSHPULL_WORKER_CLIENT_LOCAL_STEPS_SOURCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/base/thread_pool.h"
#include "common/model/variable_layout.h"
#include "common/optimizer/apply_pass.h"
#include "common/optimizer/optimizer.h"
#include "common/optimizer/state_vectors.h"
#include "protos/pipeline.pb.h"
#include "worker/client/gradient_source.h"

namespace pushpull {

// Thread rule: as GradientSource. Positions and hints are those of the trainer; the other source
// gets those of mini-batches. Memory: one vector of weights, and the optimizer's slots.
class LocalStepsSource final : public GradientSource {
 public:
  // Returns OK while the round is still wanted. Called before each mini-batch but the first; an
  // error ends Compute with it.
  using CheckFn = std::function<absl::Status()>;

  // `train_config` has passed CheckOptimizer (common/config/optimizer_checks.h). The attributes of
  // `layout` are those by which the server would train. source, layout and pool must outlive the
  // object.
  LocalStepsSource(GradientSource* source, const VariableLayout* layout,
                   const config::TrainConfig& train_config, ThreadPool* pool, CheckFn check);

  absl::StatusOr<std::shared_ptr<float>> AllocateVector(int64_t elements) override {
    return source_->AllocateVector(elements);
  }
  uint64_t num_images() const override { return source_->num_images(); }
  void NotePart(uint32_t replica, const BatchPart& part) override {
    source_->NotePart(replica, part);
  }
  void StageCompute(uint64_t position, uint32_t replica, absl::Span<const float> weights) override;
  void StageWeights(absl::Span<const float> weights, int64_t first, int64_t end) override;
  void NoteWeights(uint64_t version, absl::Span<const float> weights) override;
  absl::Status LoadInput(uint64_t position, uint32_t replica) override;  // of the first mini-batch
  void AwaitInputBy(AwaitInputFn await_input) override { await_input_ = std::move(await_input); }

  // `weights` are those of the last NoteWeights, which also says their version. Samples are those
  // of all mini-batches; loss and metrics are means over them. If the loss of a mini-batch is not
  // finite, the result is that of the mini-batch, and `gradient` its gradient.
  absl::StatusOr<GradientResult> Compute(uint64_t position, uint32_t replica,
                                         absl::Span<const float> weights,
                                         absl::Span<float> gradient,
                                         absl::FunctionRef<void(int64_t)> advance) override;

 private:
  // The mean over a round's mini-batches of what they give for a moving statistic.
  struct RoundStatistic {
    int64_t variable = 0;
    double total_weight = 0.0;
    std::vector<float> mean;
  };

  absl::Status AllocateState();
  // Makes the local weights those of the round's beginning.
  void BeginRound(absl::Span<const float> weights);
  // Makes update number h + 1 of the round by the gradient of `samples` samples.
  absl::Status Update(uint32_t h, uint64_t samples, absl::Span<const float> gradient);
  // Adds what the mini-batch gives for moving statistics to their means.
  void AddStatistics(absl::Span<const float> gradient);
  // Writes the contribution over `gradient`, from its end to its front.
  void WriteContribution(absl::Span<const float> weights, absl::Span<float> gradient,
                         absl::FunctionRef<void(int64_t)> advance) const;

  GradientSource* const source_;
  const VariableLayout* const layout_;
  const uint32_t local_steps_;
  const OptimizerSpec optimizer_;
  const Sharding sharding_;  // one shard: the clone's whole vector
  const ApplyPass pass_;
  const CheckFn check_;
  AwaitInputFn await_input_ = [](absl::FunctionRef<absl::Status()> load) { return load(); };

  uint64_t version_ = 0;                         // of the pulled weights
  std::vector<std::shared_ptr<float>> vectors_;  // what local_ points to; empty before Compute
  StateVectors local_;
  std::vector<RoundStatistic> statistics_;  // of the round's mini-batches with samples
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_LOCAL_STEPS_SOURCE_H_
