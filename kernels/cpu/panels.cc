// Tested by tests/kernels/cpu/gemm_test.cc.
#include "kernels/cpu/panels.h"

#include <type_traits>

#include "common/base/cpu_isa.h"
#include "kernels/cpu/packed_numbers.h"

namespace pushpull {

Panels ResultPanels(int64_t channels) {
  return Panels(channels, /*merge_pairs=*/HasAvx512(ChosenCpuIsa()));
}

template <typename P>
Panels InnerPanels(int64_t channels) {
  const bool in_tiles = std::is_same_v<P, Bfloat16> && MultipliesInTiles(ChosenCpuIsa());
  return Panels(channels, /*merge_pairs=*/in_tiles);
}

template Panels InnerPanels<float>(int64_t);
template Panels InnerPanels<Bfloat16>(int64_t);
template Panels InnerPanels<BfloatAsFloat>(int64_t);

}  // namespace pushpull
