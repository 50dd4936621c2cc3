#include "common/model/variable_checks.h"

#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace pushpull {
namespace {

// True if any value has all exponent bits set, which means infinity or NaN. The loop has no branch
// so that the compiler vectorises it; it then runs at memory speed.
bool HasNonFinite(absl::Span<const float> values) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t any = 0;
  for (const float value : values) {
    any |= static_cast<uint32_t>((std::bit_cast<uint32_t>(value) & kExponent) == kExponent);
  }
  return any != 0;
}

// The sum of squares, in double. There are several partial sums because in a single sum every
// addition waits for the one before it, which takes four times as long as reading the memory.
double SumOfSquares(absl::Span<const float> values) {
  constexpr size_t kLanes = 16;
  std::array<double, kLanes> sums{};
  const size_t whole = values.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (size_t i = whole; i < values.size(); ++i) sums[0] += double{values[i]} * values[i];
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace

std::string NonFiniteValue::ToString() const {
  return absl::StrCat(variable, "[", index, "] is ", value);
}

std::optional<NonFiniteValue> FindNonFinite(const VariableLayout& layout,
                                            absl::Span<const float> flat) {
  CHECK_EQ(static_cast<int64_t>(flat.size()), layout.total_elements());
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    const auto values = flat.subspan(layout.offset(i), layout.num_elements(i));
    if (!HasNonFinite(values)) continue;
    for (int64_t k = 0; k < static_cast<int64_t>(values.size()); ++k) {
      if (!std::isfinite(values[k]))
        return NonFiniteValue{layout.variables()[i].name, k, values[k]};
    }
  }
  return std::nullopt;
}

double RegularizationLoss(const VariableLayout& layout, absl::Span<const float> variables) {
  CHECK_EQ(static_cast<int64_t>(variables.size()), layout.total_elements());
  double loss = 0.0;
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    const double weight = layout.variables()[i].l2_weight;
    if (weight == 0.0) continue;
    loss +=
        0.5 * weight * SumOfSquares(variables.subspan(layout.offset(i), layout.num_elements(i)));
  }
  return loss;
}

}  // namespace pushpull
