// FieldChecker checks single values of a config and collects the problems.
#ifndef PUSHPULL_COMMON_CONFIG_FIELD_CHECKER_H_
#define PUSHPULL_COMMON_CONFIG_FIELD_CHECKER_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/config/config_problem.h"

namespace pushpull {

// Not thread-safe. `field` is always the full path from the top of the config, for example
// "train_config.batch_size". A check adds one problem if the value fails it.
class FieldChecker {
 public:
  void Add(absl::string_view field, absl::string_view expected, absl::string_view got,
           absl::string_view action = "");
  // Adds the problem that a required message or oneof is absent.
  void Missing(absl::string_view field, absl::string_view expected);
  void AtLeast(absl::string_view field, int64_t value, int64_t minimum);
  void Between(absl::string_view field, int64_t value, int64_t minimum, int64_t maximum);
  // The remaining checks refuse values that are not finite as well.
  void Within(absl::string_view field, double value, double minimum, double maximum);
  // Accepts 0 <= low <= high; the problem names the field of the value that is wrong.
  void Range(absl::string_view low_field, double low, absl::string_view high_field, double high);
  // Accepts values in (0, maximum].
  void Positive(absl::string_view field, double value,
                double maximum = std::numeric_limits<double>::max());
  void NotNegative(absl::string_view field, double value);
  // Accepts values in [0, 1).
  void Fraction(absl::string_view field, double value);
  void AddProblem(ConfigProblem problem) { problems_.push_back(std::move(problem)); }

  const std::vector<ConfigProblem>& problems() const { return problems_; }

 private:
  std::vector<ConfigProblem> problems_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_FIELD_CHECKER_H_
