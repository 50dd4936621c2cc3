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
                                             ToyGradientSource::Hook hook)
    : audit_(audit),
      worker_(worker),
      expected_source_(layout, num_replicas),
      source_(layout, num_replicas, Audited(audit, worker, std::move(hook))),
      expected_(layout->total_elements()) {}

absl::StatusOr<GradientResult> AuditedGradientSource::Compute(
    uint64_t position, uint32_t replica, absl::Span<const float> weights,
    absl::Span<float> gradient, absl::FunctionRef<void(int64_t)> advance) {
  expected_source_.Compute(position, replica, weights, absl::MakeSpan(expected_), [](int64_t) {})
      .IgnoreError();
  audit_->NoteCompute(worker_, position, replica, weights, expected_);
  absl::StatusOr<GradientResult> result =
      source_.Compute(position, replica, weights, gradient, advance);
  audit_->NoteComputed(worker_, weights);
  return result;
}

}  // namespace pushpull
