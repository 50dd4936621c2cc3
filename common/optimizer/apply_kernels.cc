// Tested by tests/common/optimizer/apply_pass_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "common/optimizer/apply_kernels.h"

#include <cstring>

#include "common/base/cpu_isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/apply_kernels.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "common/optimizer/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

// A source whose elements can be read as floats, at any byte alignment.
struct FloatSource {
  const char* data;
  float ratio;
};

// Loads 8 elements; lanes from count on are zero.
Lanes LoadSource(const FloatSource& source, int64_t element, int count) {
  const char* const from = source.data + element * sizeof(float);
  if (count >= kLanes) return LoadUnaligned(reinterpret_cast<const float*>(from));
  alignas(32) float lanes[kLanes] = {};
  std::memcpy(lanes, from, count * sizeof(float));
  return Load(lanes);
}

// Computes out[i] = r_0 * s_0[i], or with `add` out[i] = fma(r_0, s_0[i], out[i]), then adds the
// other sources. The sums stay in registers, so each element of `out` is written once per call. The
// loops over them must be unrolled by pragma: at -O2 the sums would otherwise live in memory.
template <bool add>
void AverageFloats(absl::Span<const FloatSource> sources, int count, float* out) {
  constexpr int kUnroll = 4;
  const auto begin_sum = [&](int i, Lanes value) HWY_ATTR {
    const Lanes ratio = Broadcast(sources[0].ratio);
    if constexpr (add) return Fma(ratio, value, Load(out + i));
    return ratio * value;
  };
  int i = 0;
  for (; i + kUnroll * kLanes <= count; i += kUnroll * kLanes) {
    Lanes sum[kUnroll];
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) {
      const int at = i + u * kLanes;
      sum[u] = begin_sum(at, LoadSource(sources[0], at, kLanes));
    }
    for (const FloatSource& source : sources.subspan(1)) {
      const Lanes ratio = Broadcast(source.ratio);
#pragma GCC unroll 4
      for (int u = 0; u < kUnroll; ++u) {
        sum[u] = Fma(ratio, LoadSource(source, i + u * kLanes, kLanes), sum[u]);
      }
    }
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) Store(sum[u], out + i + u * kLanes);
  }
  for (; i < count; i += kLanes) {
    const int left = count - i;
    Lanes sum = begin_sum(i, LoadSource(sources[0], i, left));
    for (const FloatSource& source : sources.subspan(1)) {
      sum = Fma(Broadcast(source.ratio), LoadSource(source, i, left), sum);
    }
    Store(sum, out + i);
  }
  if (i % (2 * kLanes) != 0) Store(Broadcast(0), out + i);
}

void AverageRun(absl::Span<const WeightedSource> sources, int count, float* out) {
  // Encoded sources are decoded into a few buffers that stay in the first cache. When all are in
  // use, the sources so far are summed up.
  constexpr size_t kSources = 4;
  alignas(32) float decoded[kSources][kMaxRunElements];
  FloatSource floats[kSources];
  bool add = false;
  for (size_t k = 0; k < sources.size(); k += kSources) {
    const absl::Span<const WeightedSource> some = sources.subspan(k, kSources);
    for (size_t j = 0; j < some.size(); ++j) {
      const WeightedSource& source = some[j];
      floats[j] = {source.chunk + source.begin * sizeof(float), source.ratio};
      if (source.codec->is_float32()) continue;
      source.codec->Decode(source.chunk, source.chunk_elements, source.begin, count, decoded[j]);
      floats[j].data = reinterpret_cast<const char*>(decoded[j]);
    }
    if (add) {
      AverageFloats<true>({floats, some.size()}, count, out);
    } else {
      AverageFloats<false>({floats, some.size()}, count, out);
    }
    add = true;
  }
}

void MovingStatisticRun(const float* statistic, float one_minus_decay, int64_t at, int count,
                        const ConstStateVectors& from, const StateVectors& to) {
  const Lanes rate = Broadcast(one_minus_decay);
  const bool replaces = one_minus_decay == 1.0f;
  ForEachGroup(count, [&](int i, int remaining) HWY_ATTR {
    const Writer writer{remaining};
    const Lanes v = Load(from.weights + at + i);
    const Lanes s = Load(statistic + i);
    // Where v becomes s, it is copied: the sum v + (s - v) would add a rounding error.
    const Lanes updated = replaces ? s : Fma(rate, s - v, v);
    writer.Store(to.weights + at + i, updated);
    if (to.ema != nullptr) writer.Store(to.ema + at + i, updated);
  });
}

void MovingAverageRun(float one_minus_ema_decay, int64_t at, int count,
                      const ConstStateVectors& from, const StateVectors& to) {
  const Lanes rate = Broadcast(one_minus_ema_decay);
  ForEachGroup(count, [&](int i, int remaining) HWY_ATTR {
    const Writer writer{remaining};
    const Lanes w = Load(from.weights + at + i);
    const Lanes e = Load(from.ema + at + i);
    writer.Store(to.ema + at + i, Fma(w - e, rate, e));
  });
}

double SquaredNormRun(const float* gradient, const float* weights, float l2_weight,
                      float multiplier, int count) {
  const Lanes l2 = Broadcast(l2_weight);
  const Lanes scale = Broadcast(multiplier);
  SquareSum sum;
  for (int i = 0; i < count; i += kLanes) {
    const Lanes g = Fma(l2, Load(weights + i), Load(gradient + i));
    sum.Add(g * scale, count - i);
  }
  return sum.Total();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

void AverageRun(absl::Span<const WeightedSource> sources, int count, float* out) {
  PUSHPULL_FOR_CHOSEN_ISA(AverageRun)(sources, count, out);
}

void MovingStatisticRun(const float* statistic, float one_minus_decay, int64_t at, int count,
                        const ConstStateVectors& from, const StateVectors& to) {
  PUSHPULL_FOR_CHOSEN_ISA(MovingStatisticRun)(statistic, one_minus_decay, at, count, from, to);
}

void MovingAverageRun(float one_minus_ema_decay, int64_t at, int count,
                      const ConstStateVectors& from, const StateVectors& to) {
  PUSHPULL_FOR_CHOSEN_ISA(MovingAverageRun)(one_minus_ema_decay, at, count, from, to);
}

double SquaredNormRun(const float* gradient, const float* weights, float l2_weight,
                      float multiplier, int count) {
  return PUSHPULL_FOR_CHOSEN_ISA(SquaredNormRun)(gradient, weights, l2_weight, multiplier, count);
}

void StoreFence() { hwy::FlushStream(); }

}  // namespace pushpull
#endif  // HWY_ONCE
