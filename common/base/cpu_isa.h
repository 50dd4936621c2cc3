// The instruction set that the CPU kernels of this process use. Thread-safe.
#ifndef PUSHPULL_COMMON_BASE_CPU_ISA_H_
#define PUSHPULL_COMMON_BASE_CPU_ISA_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// kAvx512Bf16 is AVX-512 with dot products of bfloat16 pairs (AVX512-BF16). Kernels of other
// numbers are those of kAvx512.
enum class CpuIsa { kAvx2, kAvx512, kAvx512Bf16 };

// Returns "avx2", "avx512" or "avx512_bf16".
absl::string_view CpuIsaName(CpuIsa isa);

// Returns the instruction sets that this CPU has and that kernels are compiled for, the best one
// last. AVX2 is always one of them, since the whole program needs it (common/cli/cpu_check.h).
std::vector<CpuIsa> AvailableCpuIsas();

// Returns the instruction set with this name, or the best available one for "auto".
// INVALID_ARGUMENT: there is none with this name. FAILED_PRECONDITION: this CPU lacks it.
absl::StatusOr<CpuIsa> ParseCpuIsa(absl::string_view name);

// The instruction set that kernels use: the best available one, unless UseCpuIsa has set another.
CpuIsa ChosenCpuIsa();
// Sets ChosenCpuIsa() to an available instruction set. No kernel may run at the time.
void UseCpuIsa(CpuIsa isa);

// Returns the function that ChosenCpuIsa() selects, of one that is compiled for each. Callers use
// the macro below.
template <typename Function>
Function* ForChosenCpuIsa(Function* avx2, Function* avx512) {
  return ChosenCpuIsa() == CpuIsa::kAvx2 ? avx2 : avx512;
}

}  // namespace pushpull

// The function of this name for ChosenCpuIsa(), of one in each namespace that Highway compiles
// (HWY_NAMESPACE). A name with template arguments may contain commas.
#define PUSHPULL_FOR_CHOSEN_ISA(...) \
  ::pushpull::ForChosenCpuIsa(N_AVX2::__VA_ARGS__, N_AVX3::__VA_ARGS__)

#endif  // PUSHPULL_COMMON_BASE_CPU_ISA_H_
