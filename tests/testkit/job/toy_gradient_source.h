// A GradientSource without a network: a formula of weights, position and sample that changes every
// variable. A contribution that is lost, duplicated or computed from wrong weights changes the
// result.
#ifndef PUSHPULL_TESTS_TESTKIT_JOB_TOY_GRADIENT_SOURCE_H_
#define PUSHPULL_TESTS_TESTKIT_JOB_TOY_GRADIENT_SOURCE_H_

#include <cstdint>
#include <functional>

#include "common/model/variable_layout.h"
#include "worker/client/gradient_source.h"

namespace pushpull {

// Four variables, one of them a moving statistic, over several pages. large_elements > 0 adds a
// fifth variable, whose gradient only uses the first sample to save time.
VariableLayout MakeToyLayout(int64_t large_elements = 0);

class ToyGradientSource final : public GradientSource {
 public:
  static constexpr uint64_t kGlobalBatch = 31;
  static constexpr uint64_t kNumImages = 100;

  // Called after the computation and before the last elements are announced. It may change result
  // and gradient, and may block.
  using Hook = std::function<void(uint64_t position, uint32_t replica, GradientResult* result,
                                  absl::Span<float> gradient)>;

  ToyGradientSource(const VariableLayout* layout, uint32_t num_replicas, Hook hook = nullptr);

  // The samples of a replica: kGlobalBatch / num_replicas, and the remainder goes to the last one.
  uint64_t SamplesOf(uint32_t replica) const;

  uint64_t num_images() const override { return kNumImages; }
  absl::StatusOr<GradientResult> Compute(uint64_t position, uint32_t replica,
                                         absl::Span<const float> weights,
                                         absl::Span<float> gradient,
                                         absl::FunctionRef<void(int64_t)> advance) override;

 private:
  const VariableLayout* const layout_;
  const uint32_t num_replicas_;
  const Hook hook_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_JOB_TOY_GRADIENT_SOURCE_H_
