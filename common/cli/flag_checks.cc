#include "common/cli/flag_checks.h"

#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

#include "common/cli/exit_codes.h"

namespace pushpull {

absl::Status CheckAtLeast(absl::string_view flag, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return UsageError(absl::StrCat("--", flag, "=", value, ", expected at least ", least));
}

absl::Status CheckAtLeast(absl::string_view flag, absl::Duration value, absl::Duration least) {
  if (value >= least) return absl::OkStatus();
  return UsageError(absl::StrCat("--", flag, "=", absl::FormatDuration(value),
                                 ", expected at least ", absl::FormatDuration(least)));
}

absl::Status CheckPort(absl::string_view flag, int value) {
  if (value >= 0 && value <= 65535) return absl::OkStatus();
  return UsageError(absl::StrCat("--", flag, "=", value, ", expected 0 to 65535"));
}

absl::Status CheckNotSet(absl::Span<const absl::string_view> flags, absl::string_view use) {
  std::vector<std::string> set;
  for (const absl::string_view name : flags) {
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    CHECK(flag != nullptr) << name;
    if (flag->CurrentValue() != flag->DefaultValue()) set.push_back(absl::StrCat("--", name));
  }
  if (set.empty()) return absl::OkStatus();
  return UsageError(absl::StrCat(absl::StrJoin(set, ", "), set.size() == 1 ? " has" : " have",
                                 " no effect with ", use, ": leave ",
                                 set.size() == 1 ? "it" : "them", " out"));
}

}  // namespace pushpull
