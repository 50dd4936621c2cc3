// Tested by tests/kernels/cuda/emulation/shared_accesses_test.cc.
#include "kernels/cuda/emulation/tensor_core.h"

#include "kernels/cuda/matrix_unit.cuh"

namespace pushpull::emulation {

void MultiplyAdd(const unsigned a[4], const unsigned b[2], float d[4]) {
  const auto both = [](unsigned low, unsigned high) {
    return low | static_cast<uint64_t>(high) << 32;
  };
  const auto half = [](uint64_t word, unsigned i) {
    return static_cast<unsigned>(i == 0 ? word : word >> 32);
  };
  const LaneValues* const lanes =
      GatherWarp({{both(a[0], a[1]), both(a[2], a[3]), both(b[0], b[1])}});
  emulated_cuda::MultiplyAddByLanes(
      LaneId(), d,
      [&](unsigned i, unsigned lane) { return half(lanes[lane].values[i / 2], i % 2); },
      [&](unsigned i, unsigned lane) { return half(lanes[lane].values[2], i); });
}

}  // namespace pushpull::emulation
