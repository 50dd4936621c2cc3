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
  const CpuIsa first = AvailableCpuIsas().front();
  EXPECT_TRUE(first == CpuIsa::kSse4 || first == CpuIsa::kNeon);
}

TEST(CpuIsaTest, AutoIsTheBestOne) {
  EXPECT_EQ(ParseCpuIsa("auto").value(), AvailableCpuIsas().back());
}

TEST(CpuIsaTest, AnUnknownNameIsRefused) {
  for (const char* name : {"", "AVX2", "avx", "sve"}) {
    const absl::Status status = ParseCpuIsa(name).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name << ": " << status;
    EXPECT_EQ(status.message(), AvailableCpuIsas().front() == CpuIsa::kNeon
                                    ? "expected auto, neon"
                                    : "expected auto, sse4, avx2, avx512, avx512_bf16, amx_bf16");
  }
}

TEST(CpuIsaTest, OneThatTheCpuLacksIsRefused) {
  const CpuIsa best = AvailableCpuIsas().back();
  if (best == CpuIsa::kAmxBf16 || best == CpuIsa::kNeon) GTEST_SKIP() << "this CPU has them all";
  const absl::Status status = ParseCpuIsa("amx_bf16").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(absl::StartsWith(
      status.message(),
      "this CPU lacks amx_bf16, or Linux does not let this process use it, which takes version "
      "5.16 or newer; this process can use sse4"))
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
