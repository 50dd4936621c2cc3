#include "common/cli/flag_checks.h"

#include "absl/strings/str_cat.h"

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

}  // namespace pushpull
