// Kernels with one mistake each in how they use shared memory, and correct ones beside them.
#include "kernels/cuda/emulation/shared_accesses.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/matrix_unit.cuh"
#include "kernels/cuda/numbers.cuh"
#include "tests/kernels/cuda/device_fixture.h"

namespace pushpull::emulated_cuda {
namespace {

constexpr unsigned kThreads = 64;

template <typename T>
T* Shared() {
  return reinterpret_cast<T*>(SharedBytes());
}

class SharedAccesses : public testing::Test {
 protected:
  void SetUp() override {
    if (!emulation::kObservesAccesses) GTEST_SKIP() << "a build with a sanitizer observes nothing";
  }
  ~SharedAccesses() override { SetOrder(Order::kForward); }

  // Runs a block of 64 threads with 1 KiB of shared memory.
  void Run(void (*kernel)(float*)) {
    Launch(&queue_, "tested", {dim3(1), dim3(kThreads), 1024}, kernel, out_.data());
  }
  // The kernel has the error whatever the order of its threads.
  void ExpectError(void (*kernel)(float*), const std::string& message) {
    for (const Order order : {Order::kForward, Order::kBackward, Order::kShuffled}) {
      SetOrder(order);
      EXPECT_DEATH(Run(kernel), "tested, block 0 0 0: .*" + message);
    }
  }

  Queue queue_;
  std::vector<float> out_ = std::vector<float>(kThreads);
};

TEST_F(SharedAccesses, AMissingBlockBarrierIsARace) {
  ExpectError(
      +[](float* out) {
        Shared<float>()[threadIdx.x] = 1.0f;
        __syncwarp();
        out[threadIdx.x] = Shared<float>()[(threadIdx.x + 32) % kThreads];
      },
      "race at byte .*, and no __syncthreads is between them");
}

TEST_F(SharedAccesses, ABarrierAfterTheReadsIsNeededToo) {
  ExpectError(
      +[](float* out) {
        for (int turn = 0; turn < 2; ++turn) {
          Shared<float>()[threadIdx.x] = static_cast<float>(turn);
          __syncthreads();
          out[threadIdx.x] = Shared<float>()[(threadIdx.x + 32) % kThreads];
        }
      },
      "race at byte .* and no __syncthreads is between them");
}

// Lanes hand a number to their neighbour. CUDA's shuffles do not order memory.
template <bool kOrders>
void HandOver(float* out) {
  Shared<float>()[threadIdx.x] = 0.0f;
  __syncthreads();
  Shared<float>()[threadIdx.x] = static_cast<float>(threadIdx.x);
  __shfl_xor_sync(0xffffffffu, 1.0f, 1u);
  __ballot_sync(0xffffffffu, 1);
  if (kOrders) __syncwarp();
  out[threadIdx.x] = Shared<float>()[threadIdx.x ^ 1];
}

TEST_F(SharedAccesses, AShuffleDoesNotOrderMemory) {
  ExpectError(HandOver<false>,
              "race at byte [0-9]+ of shared memory: thread [0-9]+ .warp [01]. writes it and "
              "thread [0-9]+ .warp [01]. reads it, and neither __syncwarp nor");
}

TEST_F(SharedAccesses, AWarpBarrierOrdersTheWarp) {
  Run(HandOver<true>);
  for (unsigned t = 0; t < kThreads; ++t) EXPECT_EQ(out_[t], static_cast<float>(t ^ 1));
}

// The matrices are written by the lanes that load other rows of them.
template <bool kOrders>
void LoadFreshMatrices(float* out) {
  auto* const row = Shared<Bfloat16>() + 8 * (threadIdx.x % 32);
  if (threadIdx.x < 32) {
    for (int i = 0; i < 8; ++i) row[i] = ToBfloat16(1.0f);
  }
  if (kOrders) __syncthreads();
  unsigned matrices[4];
  LoadMatrices(row, matrices);
  out[threadIdx.x] = __uint_as_float(matrices[0] << 16);
}

TEST_F(SharedAccesses, MatricesAreLoadedFromSharedMemory) {
  Run(LoadFreshMatrices<true>);
  EXPECT_EQ(out_, std::vector<float>(kThreads, 1.0f));
  SetOrder(Order::kForward);
  EXPECT_DEATH(Run(LoadFreshMatrices<false>), "tested, block 0 0 0: race at byte .* reads it");
}

TEST_F(SharedAccesses, VectorsAreAccessedWhole) {
  ExpectError(
      +[](float*) {
        if (threadIdx.x == 0) Store8(std::vector<float>(8).data(), Shared<float>());
        if (threadIdx.x == 40) Shared<float>()[7] = 1.0f;
      },
      "race at byte 28 of shared memory");
}

TEST_F(SharedAccesses, NeighbouringBfloat16NumbersAreIndependent) {
  Run(+[](float* out) {
    Shared<Bfloat16>()[threadIdx.x] = ToBfloat16(2.0f);
    out[threadIdx.x] = ToFloat(Shared<Bfloat16>()[threadIdx.x]);
  });
  EXPECT_EQ(out_, std::vector<float>(kThreads, 2.0f));
}

template <bool kReadsAtOnce>
void FindLeast(float* out) {
  int* const least = Shared<int>();
  if (threadIdx.x == 0) *least = kThreads;
  __syncthreads();
  atomicMin(least, 1 + static_cast<int>(threadIdx.x));
  if (!kReadsAtOnce) __syncthreads();
  out[threadIdx.x] = static_cast<float>(*least);
}

TEST_F(SharedAccesses, AtomicOperationsDoNotRaceButReadsOfTheirResultDo) {
  Run(FindLeast<false>);
  EXPECT_EQ(out_, std::vector<float>(kThreads, 1.0f));
  ExpectError(FindLeast<true>, "atomically changes it");
}

TEST_F(SharedAccesses, AccessesOutsideAreErrors) {
  ExpectError(
      +[](float*) { Shared<float>()[256 + threadIdx.x] = 1.0f; },
      "writes shared memory at byte [0-9]+, outside of it");
  ExpectError(
      +[](float* out) { out[threadIdx.x] = Shared<float>()[-1]; },
      "reads shared memory at byte -4, outside of it");
}

TEST_F(SharedAccesses, EachBlockIsCheckedOnItsOwn) {
  const auto kernel = +[](float* out) {
    if (threadIdx.x == blockIdx.x) Shared<float>()[0] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = Shared<float>()[0];
  };
  for (int i = 0; i < 2; ++i) {
    Launch(&queue_, "blocks", {dim3(3), dim3(kThreads), 1024}, kernel, out_.data());
  }
  EXPECT_EQ(out_, std::vector<float>(kThreads, 1.0f));
}

}  // namespace
}  // namespace pushpull::emulated_cuda
