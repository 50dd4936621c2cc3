// A ToyGradientSource that tells a ContributionAudit from which weights each contribution is
// computed. With local steps, a contribution is that of a LocalStepsSource around it.
#ifndef PUSHPULL_TESTS_TESTKIT_JOB_AUDITED_GRADIENT_SOURCE_H_
#define PUSHPULL_TESTS_TESTKIT_JOB_AUDITED_GRADIENT_SOURCE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/testkit/job/contribution_audit.h"
#include "tests/testkit/job/toy_gradient_source.h"
#include "worker/client/local_steps_source.h"

namespace pushpull {

class AuditedGradientSource final : public GradientSource {
 public:
  // `audit` and `layout` must outlive the source. `worker` is the worker id of the clone. With
  // local steps, the hook must not change gradients. `check` is that of LocalStepsSource.
  AuditedGradientSource(ContributionAudit* audit, uint32_t worker, const VariableLayout* layout,
                        uint32_t num_replicas, const config::TrainConfig& train_config,
                        ToyGradientSource::Hook hook, LocalStepsSource::CheckFn check);

  void set_num_images(uint64_t num_images) { num_images_ = num_images; }
  uint64_t num_images() const override { return num_images_; }
  void NoteWeights(uint64_t version, absl::Span<const float> weights) override;
  void AwaitInputBy(AwaitInputFn await_input) override {
    source_->AwaitInputBy(std::move(await_input));
  }
  absl::StatusOr<GradientResult> Compute(uint64_t position, uint32_t replica,
                                         absl::Span<const float> weights,
                                         absl::Span<float> gradient,
                                         absl::FunctionRef<void(int64_t)> advance) override;

 private:
  ContributionAudit* const audit_;
  const uint32_t worker_;
  uint64_t num_images_ = ToyGradientSource::kNumImages;
  ToyGradientSource expected_toy_;  // without the hook
  ToyGradientSource toy_;
  ThreadPool pool_{1};
  std::optional<LocalStepsSource> expected_local_steps_;
  std::optional<LocalStepsSource> local_steps_;
  GradientSource* expected_source_;
  GradientSource* source_;
  std::vector<float> expected_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_JOB_AUDITED_GRADIENT_SOURCE_H_
