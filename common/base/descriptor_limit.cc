#include "common/base/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace pushpull {

std::optional<int64_t> RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
  if (limit.rlim_cur < limit.rlim_max) {
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  }
  return static_cast<int64_t>(std::min(limit.rlim_cur, rlim_t{1} << 30));
}

}  // namespace pushpull
