// Copies that run beside a thread: their numbers are there after the wait, and no earlier.
#include "kernels/cuda/emulation/async_copies.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/cuda/async_copy.cuh"

namespace pushpull::emulated_cuda {
namespace {

using testing::Each;

constexpr int kThreads = 64;

struct Numbers {
  alignas(16) Bfloat16 of[kThreads * 8];
};

Numbers Counting() {
  Numbers numbers;
  for (int i = 0; i < kThreads * 8; ++i) numbers.of[i] = ToBfloat16(static_cast<float>(i % 100));
  return numbers;
}

void RunBlocks(const std::function<void()>& thread) {
  emulation::RunGrid("Copying", 2, kThreads, sizeof(Numbers), thread);
}

Bfloat16* Shared() { return reinterpret_cast<Bfloat16*>(emulation::SharedMemory()); }

TEST(AsyncCopiesTest, NumbersAreThereAfterTheWaitAndTheBarrier) {
  const Numbers from = Counting();
  std::vector<float> sums;
  RunBlocks([&] {
    const int t = static_cast<int>(threadIdx.x);
    StartCopy8(from.of + t * 8, t % 2 == 0, Shared() + t * 8);
    CloseCopyGroup();
    WaitForCopies<0>();
    __syncthreads();
    const int other = (t + 33) % kThreads;
    for (int i = 0; i < 8; ++i) {
      const float expected = other % 2 == 0 ? ToFloat(from.of[other * 8 + i]) : 0.0f;
      sums.push_back(ToFloat(Shared()[other * 8 + i]) - expected);
    }
  });
  EXPECT_EQ(sums.size(), 2 * kThreads * 8);
  EXPECT_THAT(sums, Each(0.0f));
}

TEST(AsyncCopiesTest, ANewerGroupMayStillBeUnderWay) {
  const Numbers from = Counting();
  int waited_for = 0, under_way = 0;
  RunBlocks([&] {
    const int t = static_cast<int>(threadIdx.x);
    if (t >= 2) return;
    Bfloat16* const first = Shared() + t * 16;
    StartCopy8(from.of + t * 8, true, first);
    CloseCopyGroup();
    StartCopy8(from.of + t * 8, true, first + 8);
    CloseCopyGroup();
    WaitForCopies<1>();
    waited_for += ToFloat(first[1]) == ToFloat(from.of[t * 8 + 1]);
    under_way += std::isnan(ToFloat(first[9]));
    WaitForCopies<0>();
    waited_for += ToFloat(first[9]) == ToFloat(from.of[t * 8 + 1]);
  });
  EXPECT_EQ(waited_for, 8);
  EXPECT_EQ(under_way, 4);
}

TEST(AsyncCopiesDeathTest, AMissingWaitEndsTheProcess) {
  const Numbers from = Counting();
  EXPECT_DEATH(RunBlocks([&] {
                 StartCopy8(from.of, true, Shared() + threadIdx.x * 8);
                 CloseCopyGroup();
               }),
               "Copying: thread 0 has ended without waiting for 1 asynchronous copies");
}

}  // namespace
}  // namespace pushpull::emulated_cuda
