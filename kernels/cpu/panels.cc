// Tested by tests/kernels/cpu/gemm_test.cc.
#include "kernels/cpu/panels.h"

#include "common/base/cpu_isa.h"

namespace pushpull {

Panels ResultPanels(int64_t channels) {
  return Panels(channels, /*merge_pairs=*/HasAvx512(ChosenCpuIsa()));
}

}  // namespace pushpull
