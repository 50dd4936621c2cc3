// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "scripts/bench/step/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/functional/function_ref.h"

#include "common/base/cpu_isa.h"
#include "kernels/cpu/gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "scripts/bench/step/machine_limits.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "kernels/cpu/tile_product.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Tag>;
constexpr int kLanes = HWY_LANES(float) < 16 ? HWY_LANES(float) : 16;
constexpr int kChains = 12;  // enough to hide the latency of two multiply-adds per cycle

// Makes the compiler believe that the vector changes, so that no step is left out.
HWY_INLINE void HoldInRegister(Vector& v) {
#if HWY_ARCH_X86
  asm volatile("" : "+v"(v.raw));
#else
  asm volatile("" : "+w"(v.raw));
#endif
}

struct FusedMultiplyAdd {
  static constexpr int kFlops = 2 * kLanes;
  static HWY_INLINE void Run(Vector a, Vector b, Vector& sum) { sum = hn::MulAdd(a, b, sum); }
};
#if HWY_TARGET == HWY_AVX3
struct DotProduct {
  static constexpr int kFlops = 4 * kLanes;
  static HWY_INLINE void Run(Vector a, Vector b, Vector& sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  }
};
#endif

// Returns the operations that `steps` steps have made.
template <typename Operation>
double MultiplyAndAdd(int64_t steps) {
  const Tag d;
  const Vector a = hn::Set(d, 0.5f), b = hn::Set(d, 0.25f);
  Vector sums[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = hn::Zero(d);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      Operation::Run(a, b, sums[i]);
      HoldInRegister(sums[i]);
    }
  }
  return static_cast<double>(steps) * kChains * Operation::kFlops;
}

#if HWY_TARGET == HWY_AVX3
// The same with tile registers, which hold zeros.
double MultiplyTiles(int64_t steps) {
  ConfigureTiles({2 * kTileRows, 2 * kTilePairs, kTilePairs});
  for (int64_t step = 0; step < steps; ++step) {
    AddProduct<0, 4, 6>();
    AddProduct<1, 4, 7>();
    AddProduct<2, 5, 6>();
    AddProduct<3, 5, 7>();
  }
  ReleaseTiles();
  constexpr double kProductFlops = 2.0 * kTileRows * kTilePairs * 2 * kTilePairs;
  return static_cast<double>(steps) * 4 * kProductFlops;
}
#endif

constexpr auto* kMultiplyAndAddFloats = MultiplyAndAdd<FusedMultiplyAdd>;
#if HWY_TARGET == HWY_AVX3
constexpr auto* kMultiplyAndAddPairs = MultiplyAndAdd<DotProduct>;
constexpr auto* kMultiplyAndAddTiles = MultiplyTiles;
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {
namespace {

// Returns how much work per second body(thread) does on all threads together, the best of 7 tries.
// body returns the amount that it has done.
double BestRate(ThreadPool* pool, absl::FunctionRef<double(int64_t)> body) {
  const int threads = pool->num_threads();
  double best = 0.0;
  for (int attempt = 0; attempt < 7; ++attempt) {
    std::vector<double> done(threads);
    const auto start = std::chrono::steady_clock::now();
    pool->ParallelFor(threads, [&](int64_t thread) { done[thread] = body(thread); });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    double sum = 0.0;
    for (const double amount : done) sum += amount;
    best = std::max(best, sum / seconds.count());
  }
  return best;
}

}  // namespace

MachineLimits MeasureLimits(Precision precision, ThreadPool* pool) {
  constexpr int64_t kSteps = 4 << 20;
  constexpr size_t kBytes = size_t{64} << 20;
  auto* multiply = PUSHPULL_FOR_CHOSEN_ISA(kMultiplyAndAddFloats);
#if HWY_ARCH_X86
  if (precision == Precision::kBfloat16 && PairsAreFaster()) {
    multiply = MultipliesInTiles(ChosenCpuIsa()) ? N_AVX3::kMultiplyAndAddTiles
                                                 : N_AVX3::kMultiplyAndAddPairs;
  }
#else
  static_cast<void>(precision);  // one instruction set, which multiplies floats
#endif
  std::vector<std::vector<char>> from(pool->num_threads(), std::vector<char>(kBytes, 1)), to = from;
  MachineLimits limits;
  limits.flops_per_second = BestRate(pool, [&](int64_t) { return multiply(kSteps); });
  limits.bytes_per_second = BestRate(pool, [&](int64_t thread) {
    std::memcpy(to[thread].data(), from[thread].data(), kBytes);
    return 2.0 * kBytes;
  });
  return limits;
}

}  // namespace pushpull
#endif  // HWY_ONCE
