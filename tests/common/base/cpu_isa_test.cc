#include "common/base/cpu_isa.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(CpuIsaTest, NamesAreParsed) {
  for (const CpuIsa isa : AvailableCpuIsas()) {
    const absl::StatusOr<CpuIsa> parsed = ParseCpuIsa(CpuIsaName(isa));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, isa);
  }
  EXPECT_EQ(AvailableCpuIsas().front(), CpuIsa::kAvx2);
}

TEST(CpuIsaTest, AutoIsTheBestOne) {
  EXPECT_EQ(ParseCpuIsa("auto").value(), AvailableCpuIsas().back());
}

TEST(CpuIsaTest, AnUnknownNameIsRefused) {
  for (const char* name : {"", "AVX2", "avx", "neon"}) {
    const absl::Status status = ParseCpuIsa(name).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name << ": " << status;
    EXPECT_EQ(status.message(), "expected auto, avx2, avx512, avx512_bf16");
  }
}

TEST(CpuIsaTest, OneThatTheCpuLacksIsRefused) {
  if (AvailableCpuIsas().back() == CpuIsa::kAvx512Bf16) GTEST_SKIP() << "this CPU has them all";
  const absl::Status status = ParseCpuIsa("avx512_bf16").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(absl::StartsWith(status.message(), "this CPU lacks avx512_bf16; it has avx2"))
      << status;
}

TEST(CpuIsaTest, TheOneInUseIsTheChosenOne) {
  for (const CpuIsa isa : AvailableCpuIsas()) {
    UseCpuIsa(isa);
    EXPECT_EQ(ChosenCpuIsa(), isa);
  }
}

}  // namespace
}  // namespace pushpull
