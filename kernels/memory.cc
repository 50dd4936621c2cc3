#include "kernels/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace pushpull {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

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
          absl::StrCat("no memory for ", bytes, " bytes: ", problem, "; the host has ",
                       sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE), " bytes free"));
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
