// Tested by tests/kernels/cpu/gemm_test.cc.
#include "kernels/cpu/panels.h"

#include "common/base/cpu_isa.h"

namespace pushpull {

Panels ResultPanels(int64_t channels) {
  const CpuIsa isa = ChosenCpuIsa();
  return Panels(channels, /*merge_pairs=*/isa == CpuIsa::kAvx512 || isa == CpuIsa::kAvx512Bf16);
}

}  // namespace pushpull
