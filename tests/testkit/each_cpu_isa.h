// Runs a part of a test once per instruction set, and says which of them have to agree.
#ifndef PUSHPULL_TESTS_TESTKIT_EACH_CPU_ISA_H_
#define PUSHPULL_TESTS_TESTKIT_EACH_CPU_ISA_H_

#include <type_traits>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/cpu_isa.h"
#include "kernels/bfloat16.h"

namespace pushpull {

// Returns whether two instruction sets should give the same bits where tensors are of type T.
template <typename T>
bool RoundAlike(CpuIsa a, CpuIsa b) {
  const bool in_pairs = std::is_same_v<T, Bfloat16>;
  return HasFusedMultiplyAdd(a) == HasFusedMultiplyAdd(b) &&
         (!in_pairs || MultipliesInTiles(a) == MultipliesInTiles(b));
}

// Returns the best instruction set of this CPU that multiplies bfloat16 numbers one pair at a time.
inline CpuIsa BestCpuIsaWithoutTiles() {
  std::vector<CpuIsa> isas = AvailableCpuIsas();
  std::erase_if(isas, MultipliesInTiles);
  return isas.back();
}

// Calls f for each instruction set that this CPU has, while the kernels use it. The last one, which
// they use anyway, is the one that they use afterwards.
template <typename F>
void ForEachCpuIsa(F f) {
  for (const CpuIsa isa : AvailableCpuIsas()) {
    SCOPED_TRACE(CpuIsaName(isa));
    UseCpuIsa(isa);
    f();
  }
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_EACH_CPU_ISA_H_
