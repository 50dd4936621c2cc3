// Tested by tests/common/config/validate_config_test.cc.
#include "common/config/field_checker.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace pushpull {

void FieldChecker::Add(absl::string_view field, absl::string_view expected, absl::string_view got,
                       absl::string_view action) {
  problems_.push_back(
      {std::string(field), std::string(expected), std::string(got), std::string(action)});
}

void FieldChecker::Missing(absl::string_view field, absl::string_view expected) {
  Add(field, expected, "nothing", "add it (deploy/pipelines has complete examples)");
}

void FieldChecker::AtLeast(absl::string_view field, int64_t value, int64_t minimum) {
  if (value < minimum) Add(field, absl::StrCat("at least ", minimum), absl::StrCat(value));
}

void FieldChecker::Between(absl::string_view field, int64_t value, int64_t minimum,
                           int64_t maximum) {
  if (value >= minimum && value <= maximum) return;
  Add(field, absl::StrCat("a number from ", minimum, " to ", maximum), absl::StrCat(value));
}

void FieldChecker::Within(absl::string_view field, double value, double minimum, double maximum) {
  if (value >= minimum && value <= maximum) return;
  Add(field, absl::StrCat("a number from ", minimum, " to ", maximum), absl::StrCat(value));
}

void FieldChecker::Range(absl::string_view low_field, double low, absl::string_view high_field,
                         double high) {
  NotNegative(low_field, low);
  if (high >= low && std::isfinite(high)) return;
  Add(high_field, absl::StrCat("at least ", low_field, " (", low, ")"), absl::StrCat(high));
}

void FieldChecker::Positive(absl::string_view field, double value, double maximum) {
  if (value > 0 && value <= maximum) return;
  const bool bounded = maximum < std::numeric_limits<double>::max();
  Add(field,
      absl::StrCat("a number above 0", bounded ? absl::StrCat(" and at most ", maximum) : ""),
      absl::StrCat(value));
}

void FieldChecker::NotNegative(absl::string_view field, double value) {
  if (!(value >= 0) || !std::isfinite(value))
    Add(field, "a number of at least 0", absl::StrCat(value));
}

void FieldChecker::Fraction(absl::string_view field, double value) {
  if (!(value >= 0 && value < 1)) Add(field, "a number from 0 to below 1", absl::StrCat(value));
}

}  // namespace pushpull
