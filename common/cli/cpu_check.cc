// Tested by tests/common/cli/main_support_test.cc.
#include "common/cli/cpu_check.h"

#include <string.h>
#include <unistd.h>

#include "common/base/cpu_isa.h"

namespace pushpull {
namespace {

void Say(const char* text) {
  if (::write(STDERR_FILENO, text, ::strlen(text)) < 0) return;
}

}  // namespace

const char* MissingCpuFeature() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("sse4.2")) return "SSE4.2";
  if (!__builtin_cpu_supports("popcnt")) return "POPCNT";
  if (!kBuildNeedsAvx2) return nullptr;
  if (!__builtin_cpu_supports("avx2")) return "AVX2";
  if (!__builtin_cpu_supports("fma")) return "FMA";
  if (!__builtin_cpu_supports("bmi2")) return "BMI2";
#endif
  return nullptr;
}

// 101 is the highest priority that GCC leaves to programs. It runs before the C++ static
// initialisers, whose code may already use what is missing.
__attribute__((constructor(101))) void RequireCpuFeatures() {
  const char* missing = MissingCpuFeature();
  if (missing == nullptr) return;
  Say("this CPU lacks ");
  Say(missing);
  Say(", which this build needs: ");
  if (kBuildNeedsAvx2) Say("build again without cmake -DPUSHPULL_MARCH, or ");
  Say("use a machine of the\n");
  Say(kBuildNeedsAvx2 ? "x86-64-v3 level (Intel Haswell, AMD Zen or newer)\n"
                      : "x86-64-v2 level (Intel Nehalem, AMD Bulldozer or newer)\n");
  ::_exit(70);
}

}  // namespace pushpull
