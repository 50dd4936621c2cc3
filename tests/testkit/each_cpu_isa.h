// Runs a part of a test once per instruction set.
#ifndef PUSHPULL_TESTS_TESTKIT_EACH_CPU_ISA_H_
#define PUSHPULL_TESTS_TESTKIT_EACH_CPU_ISA_H_

#include "gtest/gtest.h"

#include "common/base/cpu_isa.h"

namespace pushpull {

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
