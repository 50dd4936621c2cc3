// Tested by tests/worker/client/error_feedback_test.cc.
#include "worker/client/error_feedback.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

namespace pushpull {
namespace {

// Elements that are decoded at a time, into memory that stays in the first cache.
constexpr int64_t kPage = 1024;

// Returns `sum`, or zero if its sign is not that of the statistic.
float WithSignOf(float statistic, float sum) {
  if (statistic > 0.0f) return std::max(sum, 0.0f);
  if (statistic < 0.0f) return std::min(sum, 0.0f);
  return statistic;  // zero or NaN
}

void Add(const float* a, const float* b, int64_t count, float* sum) {
  for (int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

// residual[i] = gradient[i] + before[i] - sent[i], or zero if that is not finite. The difference of
// a value with itself is zero only for finite values.
void Subtract(const float* gradient, const float* before, const float* sent, int64_t count,
              float* residual) {
  for (int64_t i = 0; i < count; ++i) {
    const float rest = (gradient[i] + before[i]) - sent[i];
    residual[i] = rest - rest == 0.0f ? rest : 0.0f;
  }
}

}  // namespace

ErrorFeedback::ErrorFeedback(int64_t total_elements, std::vector<ElementRange> moving_statistics,
                             const GradientCodec* codec)
    : moving_statistics_(std::move(moving_statistics)),
      codec_(codec),
      residual_(total_elements),
      pending_(total_elements) {}

void ErrorFeedback::Encode(int64_t first, absl::Span<const float> gradient, char* bytes) {
  const auto size = static_cast<int64_t>(gradient.size());
  const int64_t end = first + size;
  CHECK(first >= 0 && end <= static_cast<int64_t>(residual_.size()));
  const float* const before = residual_.data() + first;
  sum_.resize(size);
  Add(gradient.data(), before, size, sum_.data());
  auto range = std::partition_point(moving_statistics_.begin(), moving_statistics_.end(),
                                    [&](const ElementRange& r) { return r.end <= first; });
  for (; range != moving_statistics_.end() && range->begin < end; ++range) {
    for (int64_t i = std::max(first, range->begin); i < std::min(end, range->end); ++i) {
      float& sum = sum_[i - first];
      sum = WithSignOf(gradient[i - first], sum);
    }
  }
  codec_->Encode(sum_, bytes);
  for (int64_t i = 0; i < size; i += kPage) {
    float sent[kPage];
    const int64_t count = std::min(kPage, size - i);
    codec_->Decode(bytes, size, i, count, sent);
    Subtract(gradient.data() + i, before + i, sent, count, pending_.data() + first + i);
  }
}

std::vector<ElementRange> MovingStatisticsOf(const VariableLayout& layout) {
  std::vector<ElementRange> ranges;
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    if (layout.variables()[i].kind != VariableKind::kMovingStatistic) continue;
    ranges.push_back({layout.offset(i), layout.offset(i) + layout.num_elements(i)});
  }
  return ranges;
}

}  // namespace pushpull
