#include "worker/client/non_finite.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"

#include "common/model/variable_checks.h"

namespace pushpull {

std::string DescribeNonFinite(const VariableLayout& layout, absl::Span<const float> weights,
                              absl::Span<const float> gradient, bool loss_is_finite,
                              absl::string_view refusal) {
  const std::string loss = loss_is_finite ? "finite loss" : "non-finite loss";
  if (const std::optional<NonFiniteValue> weight = FindNonFinite(layout, weights)) {
    return absl::StrCat(loss, "; first non-finite variable: ", weight->ToString());
  }
  if (const std::optional<NonFiniteValue> element = FindNonFinite(layout, gradient)) {
    const bool is_statistic = std::any_of(layout.variables().begin(), layout.variables().end(),
                                          [&](const VariableSpec& variable) {
                                            return variable.name == element->variable &&
                                                   variable.kind == VariableKind::kMovingStatistic;
                                          });
    return absl::StrCat(loss, "; first non-finite ",
                        is_statistic ? "statistic or buffer: " : "gradient: ", element->ToString());
  }
  return absl::StrCat(loss, "; all variables and gradients are finite",
                      refusal.empty() ? "" : ", but the server says: ", refusal);
}

}  // namespace pushpull
