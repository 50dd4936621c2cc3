#include "worker/client/non_finite.h"

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
    return absl::StrCat(loss, "; first non-finite gradient: ", element->ToString());
  }
  return absl::StrCat(loss, "; all variables and gradients are finite",
                      refusal.empty() ? "" : ", but the server says: ", refusal);
}

}  // namespace pushpull
