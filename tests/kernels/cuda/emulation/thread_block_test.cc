// The emulation has to find the mistakes for which it exists.
#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/matrix_unit.cuh"
#include "kernels/cuda/numbers.cuh"
#include "tests/kernels/cuda/device_fixture.h"

namespace pushpull::emulated_cuda {
namespace {

constexpr unsigned kThreads = 64;

class ThreadBlock : public testing::Test {
 protected:
  ~ThreadBlock() override {
    SetOrder(Order::kForward);
    emulation::SetAccessChecks(emulation::AccessChecks::kOn);
  }

  template <typename... Parameters, typename... Arguments>
  void Run(const char* name, void (*kernel)(Parameters...), Arguments... arguments) {
    Launch(&queue_, name, {dim3(2), dim3(kThreads), kThreads * sizeof(float)}, kernel,
           arguments...);
  }
  // Returns what the kernel writes: one number per thread of two blocks.
  std::vector<float> Results(void (*kernel)(float*), Order order) {
    SetOrder(order);
    std::vector<float> out(2 * kThreads, -1.0f);
    Run("results", kernel, out.data());
    return out;
  }

  Queue queue_;
};

__global__ void ReverseThroughSharedMemory(float* out) {
  float* const shared = reinterpret_cast<float*>(SharedBytes());
  shared[threadIdx.x] = static_cast<float>(blockIdx.x * blockDim.x + threadIdx.x);
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

__global__ void ReverseWithoutBarrier(float* out) {
  float* const shared = reinterpret_cast<float*>(SharedBytes());
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  const float read = shared[blockDim.x - 1 - threadIdx.x];
  out[blockIdx.x * blockDim.x + threadIdx.x] = read == read ? read : -2.0f;
}

// Reads what the neighbour wrote in this turn or already in the next one, depending on the order of
// the threads.
__global__ void TwoTurnsWithOneBarrierTooFew(float* out) {
  float* const shared = reinterpret_cast<float*>(SharedBytes());
  float sum = 0.0f;
  for (int turn = 0; turn < 2; ++turn) {
    shared[threadIdx.x] = static_cast<float>(100 * turn + threadIdx.x);
    __syncthreads();
    sum += shared[(threadIdx.x + 1) % blockDim.x];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

TEST_F(ThreadBlock, BarriersOrderSharedMemory) {
  std::vector<float> expected;
  for (unsigned block = 0; block < 2; ++block) {
    for (unsigned t = 0; t < kThreads; ++t) {
      expected.push_back(static_cast<float>(block * kThreads + kThreads - 1 - t));
    }
  }
  EXPECT_EQ(Results(ReverseThroughSharedMemory, Order::kForward), expected);
  EXPECT_EQ(Results(ReverseThroughSharedMemory, Order::kBackward), expected);
  EXPECT_EQ(Results(ReverseThroughSharedMemory, Order::kShuffled), expected);
}

TEST_F(ThreadBlock, AMissingBarrierMakesTheThreadOrdersDiffer) {
  emulation::SetAccessChecks(emulation::AccessChecks::kOff);
  EXPECT_NE(Results(ReverseWithoutBarrier, Order::kForward),
            Results(ReverseWithoutBarrier, Order::kBackward));
  EXPECT_NE(Results(TwoTurnsWithOneBarrierTooFew, Order::kForward),
            Results(TwoTurnsWithOneBarrierTooFew, Order::kBackward));
}

__global__ void NumberOfTheBlock(float* out) {
  if (threadIdx.x != 0) return;
  for (int place = 0;; ++place) {
    if (out[place] >= 0) continue;
    out[place] = static_cast<float>(blockIdx.x + 2 * (blockIdx.y + 2 * blockIdx.z));
    return;
  }
}

TEST_F(ThreadBlock, TheBlocksRunInEachOrder) {
  const auto order_of_blocks = [&](Order order) {
    SetOrder(order);
    std::vector<float> out(8, -1.0f);
    Launch(&queue_, "order", {dim3(2, 2, 2), dim3(kThreads)}, NumberOfTheBlock, out.data());
    return out;
  };
  const std::vector<float> forward{0, 1, 2, 3, 4, 5, 6, 7}, backward{7, 6, 5, 4, 3, 2, 1, 0};
  EXPECT_EQ(order_of_blocks(Order::kForward), forward);
  EXPECT_EQ(order_of_blocks(Order::kBackward), backward);
  std::vector<float> shuffled = order_of_blocks(Order::kShuffled);
  EXPECT_NE(shuffled, forward);
  EXPECT_NE(shuffled, backward);
  std::sort(shuffled.begin(), shuffled.end());
  EXPECT_EQ(shuffled, forward);
}

// Each thread waits for its neighbour on either side in the same way, so that both fixed orders
// give the same sums.
__global__ void SymmetricWithoutBarrier(float* out) {
  float* const shared = reinterpret_cast<float*>(SharedBytes());
  shared[threadIdx.x] = 0.0f;
  __syncthreads();
  const unsigned before = (threadIdx.x + blockDim.x - 1) % blockDim.x;
  const unsigned after = (threadIdx.x + 1) % blockDim.x;
  shared[threadIdx.x] = 1.0f;
  out[blockIdx.x * blockDim.x + threadIdx.x] = shared[before] + shared[after];
}

TEST_F(ThreadBlock, AShuffledOrderFindsARaceThatTheFixedOnesMiss) {
  emulation::SetAccessChecks(emulation::AccessChecks::kOff);
  EXPECT_EQ(Results(SymmetricWithoutBarrier, Order::kForward)[1],
            Results(SymmetricWithoutBarrier, Order::kBackward)[1]);
  const std::vector<float> shuffled = Results(SymmetricWithoutBarrier, Order::kShuffled);
  EXPECT_NE(shuffled, Results(SymmetricWithoutBarrier, Order::kForward));
  EXPECT_NE(std::vector<float>(shuffled.begin(), shuffled.begin() + kThreads),
            std::vector<float>(shuffled.begin() + kThreads, shuffled.end()))
      << "both blocks ran in the same order";
}

TEST_F(ThreadBlock, AGridThatCudaWouldRefuseEndsTheProcess) {
  const auto nothing = +[](float*) {};
  EXPECT_DEATH(Launch(&queue_, "tall", {dim3(1, 65536), dim3(1)}, nothing, nullptr),
               "tall: a grid of 1 x 65536 x 1 blocks, but CUDA allows 65535 in y and z");
}

TEST_F(ThreadBlock, AMaskThatLeavesOutALaneNamesTheKernel) {
  const auto shuffle = +[](float* out) { out[0] = __shfl_sync(0x7fffffffu, 1.0f, 0); };
  const auto vote = +[](float* out) { out[0] = static_cast<float>(__ballot_sync(0xffffu, 1)); };
  const auto barrier = +[](float*) { __syncwarp(0xfffffffeu); };
  std::vector<float> out(2 * kThreads);
  EXPECT_DEATH(Run("shuffle", shuffle, out.data()),
               "shuffle: the mask of a warp operation is 7fff");
  EXPECT_DEATH(Run("vote", vote, out.data()), "vote: the mask of a warp operation is ffff");
  EXPECT_DEATH(Run("barrier", barrier, out.data()), "barrier: the mask of a warp operation is");
}

TEST_F(ThreadBlock, AVectorAtAnOddAddressNamesTheKernel) {
  alignas(32) Bfloat16 numbers[64] = {};
  const auto load = +[](Bfloat16* from) { LoadRaw8(from + 4); };
  const auto store = +[](Bfloat16* to) { StoreRaw8(Raw8<Bfloat16>{}, to + 1); };
  const auto matrix = +[](Bfloat16* from) {
    unsigned out[4];
    LoadMatrices(from + 2, out);
  };
  EXPECT_DEATH(Run("load", load, numbers), "load: access to 16 bytes at");
  EXPECT_DEATH(Run("store", store, numbers), "store: access to 16 bytes at");
  EXPECT_DEATH(Run("matrix", matrix, numbers), "matrix: access to 16 bytes at");
}

TEST_F(ThreadBlock, SharedMemoryOfEveryBlockStartsAsNan) {
  emulation::SetAccessChecks(emulation::AccessChecks::kOff);
  const auto kernel = +[](float* out) {
    float* const shared = reinterpret_cast<float*>(SharedBytes());
    const float found = shared[threadIdx.x];
    shared[threadIdx.x] = 1.0f;
    out[blockIdx.x * blockDim.x + threadIdx.x] = found == found ? 0.0f : 1.0f;
  };
  EXPECT_EQ(Results(kernel, Order::kForward), std::vector<float>(2 * kThreads, 1.0f));
}

TEST_F(ThreadBlock, IndicesCoverAGridOfThreeDimensions) {
  std::vector<int> visits(2 * 3 * 2 * 4 * 2 * 3);
  const auto kernel = +[](int* out) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    ++out[block * blockDim.x * blockDim.y * blockDim.z + thread];
  };
  Launch(&queue_, "indices", {dim3(2, 3, 2), dim3(4, 2, 3), 0}, kernel, visits.data());
  EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
}

TEST_F(ThreadBlock, ABarrierThatSomeThreadsMissNamesTheKernel) {
  const auto half = +[](float*) {
    if (threadIdx.x < blockDim.x / 2) __syncthreads();
  };
  EXPECT_DEATH(Run("half_a_barrier", half, static_cast<float*>(nullptr)),
               "half_a_barrier, block 0 0 0: 32 threads wait at a barrier, 0 in a warp operation, "
               "and 32 have ended");
}

TEST_F(ThreadBlock, AWarpOperationWithoutAllLanesNamesTheKernel) {
  const auto odd = +[](float* out) {
    if (threadIdx.x % 2 == 1) out[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0);
  };
  std::vector<float> out(kThreads);
  EXPECT_DEATH(Run("odd_lanes", odd, out.data()), "odd_lanes.*32 in a warp operation");
}

TEST_F(ThreadBlock, BarriersOfBlocksAndWarpsAreIndependent) {
  const auto mixed = +[](float*) {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      __syncwarp();
      __syncwarp();
    }
  };
  EXPECT_DEATH(Run("mixed", mixed, static_cast<float*>(nullptr)), "mixed, block 0 0 0");
}

TEST_F(ThreadBlock, LanesInDifferentOperationsNameTheKernel) {
  const auto mixed = +[](float* out) {
    if (threadIdx.x % 2 == 1) {
      out[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0);
    } else {
      __syncwarp();
    }
  };
  std::vector<float> out(kThreads);
  EXPECT_DEATH(Run("mixed_lanes", mixed, out.data()),
               "mixed_lanes, block 0 0 0: some lanes of warp 0 are in __syncwarp and others in");
}

TEST_F(ThreadBlock, LaunchingAKernelFromAKernelIsAnError) {
  static Queue* inner;
  inner = &queue_;
  const auto outer = +[](float*) {
    Launch(
        inner, "inner", {dim3(1), dim3(1), 0}, +[](float*) {}, static_cast<float*>(nullptr));
  };
  EXPECT_DEATH(Run("outer", outer, static_cast<float*>(nullptr)), "inner is launched from within");
}

TEST_F(ThreadBlock, TooManyThreadsAreAnError) {
  const auto nothing = +[](float*) {};
  EXPECT_DEATH(
      Launch(&queue_, "crowd", {dim3(1), dim3(1025), 0}, nothing, static_cast<float*>(nullptr)),
      "crowd: blocks of 1025 threads");
}

TEST_F(ThreadBlock, ShufflesExchangeWithinAWarp) {
  struct Seen {
    float from_three, mirrored, sum;
    unsigned votes;
  };
  std::vector<Seen> seen(2 * kThreads);
  const auto kernel = +[](Seen* out) {
    const unsigned all = 0xffffffffu, t = threadIdx.x, lane = t % 32;
    const float own = static_cast<float>(t);
    Seen result;
    result.from_three = __shfl_sync(all, own, 3);
    result.mirrored = __shfl_xor_sync(all, own, 31u);
    double sum = static_cast<double>(t);
    for (unsigned d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(all, sum, d);
    result.sum = static_cast<float>(sum);
    result.votes = __ballot_sync(all, lane % 3 == 0);
    out[blockIdx.x * blockDim.x + t] = result;
  };
  for (const Order order : {Order::kForward, Order::kBackward}) {
    SetOrder(order);
    Run("shuffles", kernel, seen.data());
    for (unsigned i = 0; i < seen.size(); ++i) {
      const unsigned t = i % kThreads, warp = t / 32 * 32, lane = t % 32;
      EXPECT_EQ(seen[i].from_three, warp + 3);
      EXPECT_EQ(seen[i].mirrored, warp + 31 - lane);
      EXPECT_EQ(seen[i].sum, 32 * warp + 31 * 16);
      EXPECT_EQ(seen[i].votes, 0x49249249u);
    }
  }
}

}  // namespace
}  // namespace pushpull::emulated_cuda
