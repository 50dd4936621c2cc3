// Tested by tests/common/base/cpu_isa_test.cc.
#include "common/base/cpu_isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

namespace pushpull {

#if defined(__AVX2__)
const bool kBuildNeedsAvx2 = true;
#else
const bool kBuildNeedsAvx2 = false;
#endif

namespace {

#if defined(__aarch64__)

constexpr CpuIsa kAll[] = {CpuIsa::kNeon};

std::vector<CpuIsa> IsasWithoutTiles() { return {CpuIsa::kNeon}; }
bool MayUseTiles() { return false; }

#else

constexpr CpuIsa kAll[] = {CpuIsa::kSse4, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16,
                           CpuIsa::kAmxBf16};

// Conversions of half-precision floats. Read from the processor, because Clang's
// __builtin_cpu_supports does not know their name.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// What Highway's targets AVX2 and AVX3 may use (hwy/ops/set_macros-inl.h).
bool CpuHasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && HasF16c();
}
bool CpuHasAvx512() {
  return CpuHasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

// Returns the instruction sets that this CPU has and that no permission is needed for, the best one
// last.
std::vector<CpuIsa> IsasWithoutTiles() {
  std::vector<CpuIsa> isas = {CpuIsa::kSse4};
  if (CpuHasAvx2()) isas.push_back(CpuIsa::kAvx2);
  if (!CpuHasAvx512()) return isas;
  isas.push_back(CpuIsa::kAvx512);
  if (__builtin_cpu_supports("avx512bf16")) isas.push_back(CpuIsa::kAvx512Bf16);
  return isas;
}

// Returns whether the processor has AMX with bfloat16 and Linux lets this process use it. A process
// has to ask Linux for permission (Documentation/arch/x86/xstate.rst), which exists since 5.16. One
// request holds for all threads. With the permission, every alternate signal stack of the process
// has to be larger, so only programs that may use the tiles ask.
bool MayUseTiles() {
  static const bool may = [] {
    if (IsasWithoutTiles().back() != CpuIsa::kAvx512Bf16) return false;
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned kAmxBf16Bit = 1u << 22, kAmxTileBit = 1u << 24;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    if ((edx & kAmxBf16Bit) == 0 || (edx & kAmxTileBit) == 0) return false;
    constexpr int64_t kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
    return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return may;
}

#endif

// Tells the inner loops of kernels which instruction set is chosen, and returns it.
CpuIsa Announce(CpuIsa isa) {
  chosen_cpu_isa_has_avx512_bf16.store(isa == CpuIsa::kAvx512Bf16 || isa == CpuIsa::kAmxBf16);
  return isa;
}

std::atomic<CpuIsa>& Chosen() {
  static std::atomic<CpuIsa> chosen(Announce(IsasWithoutTiles().back()));
  return chosen;
}

}  // namespace

std::atomic<bool> chosen_cpu_isa_has_avx512_bf16{false};

absl::string_view CpuIsaName(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kSse4:
      return "sse4";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx512Bf16:
      return "avx512_bf16";
    case CpuIsa::kAmxBf16:
      return "amx_bf16";
    case CpuIsa::kNeon:
      return "neon";
  }
  LOG(FATAL) << "no instruction set " << static_cast<int>(isa);
}

std::vector<CpuIsa> AvailableCpuIsas() {
  std::vector<CpuIsa> isas = IsasWithoutTiles();
  if (MayUseTiles()) isas.push_back(CpuIsa::kAmxBf16);
  return isas;
}

bool HasFusedMultiplyAdd(CpuIsa isa) { return isa != CpuIsa::kSse4; }

bool MultipliesInTiles(CpuIsa isa) { return isa == CpuIsa::kAmxBf16; }

bool HasAvx512(CpuIsa isa) {
  return isa == CpuIsa::kAvx512 || isa == CpuIsa::kAvx512Bf16 || isa == CpuIsa::kAmxBf16;
}

absl::StatusOr<CpuIsa> ParseCpuIsa(absl::string_view name) {
  const std::vector<CpuIsa> available = AvailableCpuIsas();
  if (name == "auto") return available.back();
  const auto append_name = [](std::string* out, CpuIsa isa) {
    absl::StrAppend(out, CpuIsaName(isa));
  };
  for (const CpuIsa isa : kAll) {
    if (CpuIsaName(isa) != name) continue;
    if (absl::c_linear_search(available, isa)) return isa;
    return absl::FailedPreconditionError(absl::StrCat(
        "this CPU lacks ", name,
        MultipliesInTiles(isa)
            ? ", or Linux does not let this process use it, which takes version 5.16 or newer"
            : "",
        "; this process can use ", absl::StrJoin(available, ", ", append_name)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected auto, ", absl::StrJoin(kAll, ", ", append_name)));
}

CpuIsa ChosenCpuIsa() { return Chosen().load(std::memory_order_relaxed); }

void UseCpuIsa(CpuIsa isa) {
  CHECK(absl::c_linear_search(AvailableCpuIsas(), isa)) << CpuIsaName(isa);
  Chosen().store(Announce(isa));
}

}  // namespace pushpull
