#include "tests/testkit/job/audited_gradient_source.h"

#include <utility>

namespace pushpull {
namespace {

// Returns a hook that runs the test's hook and tells the audit the resulting gradient.
ToyGradientSource::Hook Audited(ContributionAudit* audit, uint32_t worker,
                                ToyGradientSource::Hook hook) {
  if (hook == nullptr) return nullptr;
  return
      [audit, worker, hook = std::move(hook)](uint64_t position, uint32_t replica,
                                              GradientResult* result, absl::Span<float> gradient) {
        hook(position, replica, result, gradient);
        audit->NoteGradient(worker, gradient);
      };
}

}  // namespace

AuditedGradientSource::AuditedGradientSource(ContributionAudit* audit, uint32_t worker,
                                             const VariableLayout* layout, uint32_t num_replicas,
                                             const config::TrainConfig& train_config,
                                             ToyGradientSource::Hook hook,
                                             LocalStepsSource::CheckFn check)
    : audit_(audit),
      worker_(worker),
      expected_toy_(layout, num_replicas),
      toy_(layout, num_replicas,
           HasLocalSteps(train_config) ? std::move(hook) : Audited(audit, worker, std::move(hook))),
      expected_source_(&expected_toy_),
      source_(&toy_),
      expected_(layout->total_elements()) {
  if (!HasLocalSteps(train_config)) return;
  expected_source_ = &expected_local_steps_.emplace(&expected_toy_, layout, train_config, &pool_,
                                                    [] { return absl::OkStatus(); });
  source_ = &local_steps_.emplace(&toy_, layout, train_config, &pool_, std::move(check));
}

void AuditedGradientSource::NoteWeights(uint64_t version, absl::Span<const float> weights) {
  expected_source_->NoteWeights(version, weights);
  source_->NoteWeights(version, weights);
}

absl::StatusOr<GradientResult> AuditedGradientSource::Compute(
    uint64_t position, uint32_t replica, absl::Span<const float> weights,
    absl::Span<float> gradient, absl::FunctionRef<void(int64_t)> advance) {
  expected_source_->Compute(position, replica, weights, absl::MakeSpan(expected_), [](int64_t) {})
      .IgnoreError();
  audit_->NoteCompute(worker_, position, replica, weights, expected_);
  absl::StatusOr<GradientResult> result =
      source_->Compute(position, replica, weights, gradient, advance);
  audit_->NoteComputed(worker_, weights);
  return result;
}

}  // namespace pushpull
