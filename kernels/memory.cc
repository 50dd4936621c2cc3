#include "kernels/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace pushpull {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

// Says how much memory there is: what the system can give without swapping, with the caches that it
// would drop, and the bound of `ulimit -v` if the process has one.
std::string AvailableMemory() {
  std::string text;
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  int64_t kib = 0;
  while (file >> name >> kib && std::getline(file, unit)) {
    if (name == "MemAvailable:") {
      text = absl::StrCat("; the host has ", kib * 1024, " bytes available");
      break;
    }
  }
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    absl::StrAppend(&text, "; the process is limited to ", limit.rlim_cur,
                    " bytes of address space (ulimit -v)");
  }
  return text;
}

class MappedMemory final : public Memory {
 public:
  MappedMemory(void* data, int64_t bytes) : Memory(data, bytes) {}
  ~MappedMemory() override { munmap(data(), bytes()); }
};

class HostMemorySource final : public MemorySource {
 public:
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) override {
    CHECK_GE(bytes, 0);
    const bool huge = bytes >= kHugePageBytes;
    const int64_t page = huge ? kHugePageBytes : kPageBytes;
    // A size that would overflow when rounded up is left as it is: mmap refuses it anyway.
    const int64_t rounded = std::max<int64_t>(bytes, 1) > INT64_MAX - page
                                ? bytes
                                : (std::max<int64_t>(bytes, 1) + page - 1) / page * page;
    void* const data =
        mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      const std::string problem = std::strerror(errno);
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for ", bytes, " bytes: ", problem, AvailableMemory()));
    }
    // Advice only, so the result is ignored: without huge pages there are just more TLB misses.
    if (huge) (void)madvise(data, rounded, MADV_HUGEPAGE);
    return std::make_unique<MappedMemory>(data, rounded);
  }

  void Write(void* to, const void* from, int64_t bytes) override { std::memcpy(to, from, bytes); }
};

}  // namespace

MemorySource* HostMemory() {
  static HostMemorySource source;
  return &source;
}

}  // namespace pushpull
