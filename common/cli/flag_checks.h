// Checks of flags whose errors read the same in every program. Thread-safe functions.
#ifndef PUSHPULL_COMMON_CLI_FLAG_CHECKS_H_
#define PUSHPULL_COMMON_CLI_FLAG_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace pushpull {

// Checks that the value of --`flag` is at least `least`. UsageError (exit code 64): it is less, for
// example "--threads=-1, expected at least 0".
absl::Status CheckAtLeast(absl::string_view flag, int64_t value, int64_t least);
absl::Status CheckAtLeast(absl::string_view flag, absl::Duration value, absl::Duration least);

// Checks that the value of --`flag` is 0, which means that nothing listens, or a TCP port.
// UsageError (exit code 64): it is neither.
absl::Status CheckPort(absl::string_view flag, int value);

// Checks that the flags of these names, which the program must have, have their default values,
// because they have no effect with `use`, another flag or a command. UsageError (exit code 64):
// some do not, for example "--shards, --skip_bad have no effect with --check: leave them out".
absl::Status CheckNotSet(absl::Span<const absl::string_view> flags, absl::string_view use);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLI_FLAG_CHECKS_H_
