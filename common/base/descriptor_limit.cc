#include "common/base/descriptor_limit.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"

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

absl::Status CheckFreeDescriptors(int count) {
  std::vector<int> opened;
  bool limited = false;
  while (static_cast<int>(opened.size()) < count) {
    const int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      limited = errno == EMFILE;
      break;
    }
    opened.push_back(descriptor);
  }
  for (const int descriptor : opened) close(descriptor);
  if (!limited) return absl::OkStatus();
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return absl::ResourceExhaustedError(
      absl::StrCat("this process may have ", limit.rlim_cur, " files open, and can open ",
                   opened.size(), " more, but ", count,
                   " are needed: raise the limit (ulimit -n, LimitNOFILE=), or close "
                   "files"));
}

}  // namespace pushpull
