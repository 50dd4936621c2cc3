#include "kernels/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

TEST(HostMemory, IsZeroedAlignedAndLargeEnough) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{5000}, int64_t{3} << 20}) {
    const auto memory = HostMemory()->Allocate(bytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_GE((*memory)->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*memory)->data()) % 256, 0u);
    const char* const begin = static_cast<const char*>((*memory)->data());
    EXPECT_TRUE(std::all_of(begin, begin + (*memory)->bytes(), [](char c) { return c == 0; }));
  }
}

TEST(HostMemory, WriteCopiesTheBytes) {
  const auto memory = HostMemory()->Allocate(3 * sizeof(int32_t));
  ASSERT_TRUE(memory.ok()) << memory.status();
  std::vector<int32_t> values{4, 5, 6};
  int32_t* const data = static_cast<int32_t*>((*memory)->data());
  HostMemory()->Write(data, values.data(), 3 * sizeof(int32_t));
  values.assign(3, 0);
  EXPECT_EQ(std::vector<int32_t>(data, data + 3), (std::vector<int32_t>{4, 5, 6}));
}

TEST(HostMemory, ReportsTheRequestedSize) {
  for (const int64_t bytes : {int64_t{1} << 62, INT64_MAX}) {
    const absl::Status status = HostMemory()->Allocate(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("no memory for " + std::to_string(bytes) + " bytes"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("bytes available"));
  }
}

// Returns a figure of /proc/meminfo in bytes, or 0 if it is not there.
double MemInfo(const std::string& wanted) {
  double kib = 0;
  std::string name, unit;
  std::ifstream file("/proc/meminfo");
  while (file >> name >> kib >> unit) {
    if (name == wanted) return 1024.0 * kib;
  }
  return 0;
}

// What the system's caches hold counts as available: it is given up when memory is needed.
TEST(HostMemory, ReportsWhatIsAvailable) {
  const double earlier = MemInfo("MemAvailable:");
  ASSERT_GT(earlier, 0);
  const std::string message(HostMemory()->Allocate(INT64_MAX).status().message());
  const std::string before = "; the host has ";
  const size_t place = message.find(before);
  ASSERT_NE(place, std::string::npos) << message;
  const double reported = std::strtod(message.c_str() + place + before.size(), nullptr);
  // Other processes change it meanwhile. Free memory alone is usually much less.
  const double later = MemInfo("MemAvailable:");
  const double margin = 0.1 * MemInfo("MemTotal:");
  EXPECT_GE(reported, std::min(earlier, later) - margin) << message;
  EXPECT_LE(reported, std::max(earlier, later) + margin) << message;
}

// The limit is more than any process has, so that it does not matter how much this one uses.
[[noreturn]] void AllocateUnderALimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0) std::exit(1);
  limit.rlim_cur = std::min(limit.rlim_max, rlim_t{1} << 50);
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(2);
  std::cerr << HostMemory()->Allocate(INT64_MAX).status().message();
  std::exit(0);
}

TEST(HostMemory, NamesALimitOfTheAddressSpace) {
  EXPECT_EXIT(AllocateUnderALimit(), testing::ExitedWithCode(0),
              "limited to [0-9]+ bytes of address space \\(ulimit -v\\)");
}

}  // namespace
}  // namespace pushpull
