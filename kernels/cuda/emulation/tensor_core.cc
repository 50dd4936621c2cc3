// Tested by tests/kernels/cuda/emulation/shared_accesses_test.cc.
#include "kernels/cuda/emulation/tensor_core.h"

#include "kernels/cuda/matrix_unit.cuh"

namespace pushpull::emulation {

void MultiplyAdd(const unsigned a[4], const unsigned b[2], float d[4]) {
  uint64_t gathered[3][32];
  GatherWarp(a[0] | static_cast<uint64_t>(a[1]) << 32, gathered[0]);
  GatherWarp(a[2] | static_cast<uint64_t>(a[3]) << 32, gathered[1]);
  GatherWarp(b[0] | static_cast<uint64_t>(b[1]) << 32, gathered[2]);
  const auto half = [](uint64_t both, unsigned i) {
    return static_cast<unsigned>(i == 0 ? both : both >> 32);
  };
  emulated_cuda::MultiplyAddByLanes(
      LaneId(), d, [&](unsigned i, unsigned lane) { return half(gathered[i / 2][lane], i % 2); },
      [&](unsigned i, unsigned lane) { return half(gathered[2][lane], i); });
}

}  // namespace pushpull::emulation
