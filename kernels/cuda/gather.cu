// Tested by tests/kernels/cuda/cuda_gather_test.cc.
#include "kernels/cuda/channel_walk.cuh"
#include "kernels/cuda/gather.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

// One thread per element of the output, in a grid-stride loop. Neighbouring threads have
// neighbouring channels, so their reads and writes are neighbours too: bound by device memory,
// except for formulas with many reads per element, which the caches serve.
template <typename Formula>
__global__ void __launch_bounds__(kWalkThreads) GatherKernel(Formula formula) {
  const int64_t size = formula.rows * formula.channels;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += step) {
    formula(i / formula.channels, i % formula.channels);
  }
}

template <typename Formula>
void LaunchGather(Queue* queue, const Formula& formula) {
  Launch(queue, Formula::kName, {WalkBlocks(*queue, formula.rows * formula.channels), kWalkThreads},
         GatherKernel<Formula>, formula);
}

}  // namespace

template <typename T>
void RunGather(Queue* queue, const Gather<T>& gather) {
  std::visit([queue](const auto& formula) { LaunchGather(queue, formula); }, gather);
}

template void RunGather<float>(Queue*, const Gather<float>&);
template void RunGather<Bfloat16>(Queue*, const Gather<Bfloat16>&);

}  // namespace pushpull::PUSHPULL_CUDA
