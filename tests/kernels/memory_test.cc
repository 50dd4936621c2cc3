#include "kernels/memory.h"

#include <algorithm>
#include <cstdint>
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
    EXPECT_THAT(std::string(status.message()), HasSubstr("bytes free"));
  }
}

}  // namespace
}  // namespace pushpull
