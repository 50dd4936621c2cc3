#include "tests/testkit/job/toy_gradient_source.h"

#include <utility>
#include <vector>

#include "glog/logging.h"

namespace pushpull {

VariableLayout MakeToyLayout(int64_t large_elements) {
  const Initializer normal{Initializer::Kind::kTruncatedNormal, 0.0f, 0.1f};
  std::vector<VariableSpec> variables;
  const auto add = [&variables](const char* name, std::vector<int64_t> shape) -> VariableSpec& {
    VariableSpec& variable = variables.emplace_back();
    variable.name = name;
    variable.shape = std::move(shape);
    return variable;
  };
  add("toy/conv/weights", {3, 3, 3, 8}).initializer = normal;
  VariableSpec& mean = add("toy/conv/moving_mean", {8});
  mean.kind = VariableKind::kMovingStatistic;
  mean.moving_average_decay = 0.9f;
  VariableSpec& dense = add("toy/dense/weights", {50, 70});
  dense.initializer = normal;
  dense.l2_weight = 0.01f;
  add("toy/dense/biases", {70});
  if (large_elements > 0) add("toy/large/weights", {large_elements}).initializer = normal;
  auto layout = VariableLayout::Create(std::move(variables));
  CHECK(layout.ok()) << layout.status();
  return *std::move(layout);
}

ToyGradientSource::ToyGradientSource(const VariableLayout* layout, uint32_t num_replicas, Hook hook)
    : layout_(layout), num_replicas_(num_replicas), hook_(std::move(hook)) {}

uint64_t ToyGradientSource::SamplesOf(uint32_t replica) const {
  const uint64_t each = kGlobalBatch / num_replicas_;
  return replica + 1 == num_replicas_ ? kGlobalBatch - each * replica : each;
}

absl::StatusOr<GradientResult> ToyGradientSource::Compute(
    uint64_t position, uint32_t replica, absl::Span<const float> weights,
    absl::Span<float> gradient, absl::FunctionRef<void(int64_t)> advance) {
  const uint64_t first = kGlobalBatch / num_replicas_ * replica;
  GradientResult result;
  result.samples = SamplesOf(replica);
  for (int64_t v = layout_->num_variables() - 1; v >= 0; --v) {
    const int64_t begin = layout_->offset(v);
    for (int64_t i = begin; i < begin + layout_->num_elements(v); ++i) {
      float sum = 0.0f;
      const uint64_t terms = v < 4 ? result.samples : 1;
      for (uint64_t k = 0; k < terms; ++k) {
        const uint64_t sample = position * kGlobalBatch + first + k;
        const float target = static_cast<float>((sample * 37 + i * 11) % 101) / 101.0f - 0.4f;
        const float pull = 0.1f + 0.05f * static_cast<float>(sample % 7);
        sum += pull * (weights[i] - target);
      }
      gradient[i] = sum / static_cast<float>(terms);
    }
    if (v > 0) advance(begin);
  }
  for (uint64_t k = 0; k < result.samples; ++k) {
    result.loss += 1.0 / static_cast<double>(1 + position + first + k);
  }
  result.loss /= static_cast<double>(result.samples);
  const auto add = [&result](const char* name, double value) {
    ps::Metric& metric = result.metrics.emplace_back();
    metric.set_name(name);
    metric.set_value(value);
  };
  add("Loss/total_loss", result.loss);
  add("accuracy", replica == 0 ? 1.0 : 0.5);
  if (hook_) hook_(position, replica, &result, gradient);
  advance(0);
  return result;
}

}  // namespace pushpull
