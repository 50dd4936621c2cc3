// The instruction set that the CPU kernels of this process use. Thread-safe.
#ifndef PUSHPULL_COMMON_BASE_CPU_ISA_H_
#define PUSHPULL_COMMON_BASE_CPU_ISA_H_

#include <atomic>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// kAvx512Bf16 is AVX-512 with dot products of bfloat16 pairs and rounding to bfloat16
// (AVX512-BF16). kAmxBf16 has these and matrix products of bfloat16 in tile registers (AMX-BF16).
// Kernels for other number types are those of kAvx512.
enum class CpuIsa { kSse4, kAvx2, kAvx512, kAvx512Bf16, kAmxBf16, kNeon };

// Returns "sse4", "avx2", "avx512", "avx512_bf16", "amx_bf16" or "neon".
absl::string_view CpuIsaName(CpuIsa isa);

// Returns the instruction sets that this CPU has, that the system lets this process use, and that
// kernels are compiled for, the best one last. The first one, SSE4 (with SSE4.2) or NEON, is always
// there, since the whole program needs it (common/cli/cpu_check.h). It asks Linux for AMX's tile
// registers where the CPU has them, after which alternate signal stacks have to be larger.
std::vector<CpuIsa> AvailableCpuIsas();

// Returns whether the instruction set has fused multiply-adds, as all but SSE4 do. Convolutions and
// products give the same bits with AVX2 and AVX-512; NEON does the same operations, but its bits
// were not compared. SSE4 rounds each product before it is added, so its bits differ. The apply
// pass and the codecs give the same bits with every instruction set.
bool HasFusedMultiplyAdd(CpuIsa isa);

// Returns whether products of bfloat16 are made in tile registers. They add up the numbers of a sum
// in another order than the other instruction sets, so the bits of networks in bfloat16 differ;
// those of networks in float32 do not.
bool MultipliesInTiles(CpuIsa isa);

// Returns whether the instruction set is AVX-512 or one that includes it.
bool HasAvx512(CpuIsa isa);

// Returns the instruction set with this name, or the best available one for "auto".
// INVALID_ARGUMENT: there is none with this name. FAILED_PRECONDITION: this CPU lacks it, or Linux
// does not let this process use it.
absl::StatusOr<CpuIsa> ParseCpuIsa(absl::string_view name);

// The instruction set that kernels use: the one that UseCpuIsa has set, or else the best available
// one for which Linux need not be asked.
CpuIsa ChosenCpuIsa();
// Sets ChosenCpuIsa() to an available instruction set. No kernel may run at the time. Operators
// choose how they pack their operands when they are made, so this should be called before.
void UseCpuIsa(CpuIsa isa);

// Whether ChosenCpuIsa() includes kAvx512Bf16, as a variable that the inner loops of kernels can
// afford to read. It is right once ChosenCpuIsa() or UseCpuIsa() has been called.
extern std::atomic<bool> chosen_cpu_isa_has_avx512_bf16;

// Whether the compiler was allowed to use AVX2 everywhere (cmake -DPUSHPULL_MARCH). A constant that
// needs no initialiser at run time.
extern const bool kBuildNeedsAvx2;

// Returns the argument that was compiled for ChosenCpuIsa(). Callers use the macro below.
template <typename Function>
Function* ForChosenCpuIsa(Function* sse4, Function* avx2, Function* avx512) {
  const CpuIsa isa = ChosenCpuIsa();
  return isa == CpuIsa::kSse4 ? sse4 : isa == CpuIsa::kAvx2 ? avx2 : avx512;
}

}  // namespace pushpull

// Highway compiles a function of this name in one namespace per instruction set (HWY_NAMESPACE).
// This is the function that was compiled for ChosenCpuIsa(). A name with template arguments may
// contain commas.
#if defined(__aarch64__)
#define PUSHPULL_FOR_CHOSEN_ISA(...) (N_NEON::__VA_ARGS__)
#else
#define PUSHPULL_FOR_CHOSEN_ISA(...) \
  ::pushpull::ForChosenCpuIsa(N_SSE4::__VA_ARGS__, N_AVX2::__VA_ARGS__, N_AVX3::__VA_ARGS__)
#endif

#endif  // PUSHPULL_COMMON_BASE_CPU_ISA_H_
