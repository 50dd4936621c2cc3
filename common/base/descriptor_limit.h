// The number of files that this process may have open at the same time (ulimit -n).
#ifndef PUSHPULL_COMMON_BASE_DESCRIPTOR_LIMIT_H_
#define PUSHPULL_COMMON_BASE_DESCRIPTOR_LIMIT_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace pushpull {

// Raises the soft limit to the hard limit. Returns the soft limit after that, at most 2^30, or
// nullopt if it is unknown. The limit holds for the whole process, and child processes inherit it.
// Many systems have a soft limit of 1024, which is kept low only for programs that use select().
// Ours do not. Thread-safe.
std::optional<int64_t> RaiseDescriptorLimit();

// Checks that the limit of this process allows `count` more open files at the moment, by opening
// /dev/null as often. RESOURCE_EXHAUSTED: it does not; the message names the limit. Thread-safe.
absl::Status CheckFreeDescriptors(int count);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_DESCRIPTOR_LIMIT_H_
