// Tested by tests/ps_server/store/apply_pass_test.cc.
#include "ps_server/store/apply_kernels.h"

#include <immintrin.h>

#include <cstring>

#include "glog/logging.h"

namespace pushpull {
namespace {

constexpr int kLanes = 8;

// Returns a mask of all ones in the lanes below count.
__m256 LaneMask(int count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane));
}

// Loads 8 elements; lanes from count on are zero. A bfloat16 is the upper half of a float.
__m256 LoadBfloat16(const char* data, int64_t element, int count) {
  const char* const from = data + element * sizeof(uint16_t);
  __m128i halves = _mm_setzero_si128();
  if (count >= kLanes) {
    halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  } else {
    std::memcpy(&halves, from, count * sizeof(uint16_t));
  }
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

__m256 LoadSource(const WeightedSource& source, int64_t element, int count) {
  if (source.is_bfloat16) return LoadBfloat16(source.data, element, count);
  const char* const from = source.data + element * sizeof(float);
  if (count >= kLanes) return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  alignas(32) float lanes[kLanes] = {};
  std::memcpy(lanes, from, count * sizeof(float));
  return _mm256_load_ps(lanes);
}

// Stores results and zeroes the lanes past the end. Every result is stored here, so that the choice
// to bypass the caches is made in one place.
struct Writer {
  int remaining;  // elements left in the run, this group included
  void Store(float* to, __m256 value) const {
    if (remaining < kLanes) value = _mm256_and_ps(value, LaneMask(remaining));
    _mm256_stream_ps(to, value);
  }
};

// Calls body(i, remaining) for each group of 8 elements up to count rounded up to a multiple of 16.
// A group that is all padding has remaining <= 0.
template <typename Body>
inline void ForEachGroup(int count, Body body) {
  const int padded = (count + 15) / 16 * 16;
  for (int i = 0; i < padded; i += kLanes) body(i, count - i);
}

template <OptimizerKind kKind, bool kEma>
void Update(const float* gradient, const UpdateConstants& c, int64_t at, int count,
            const ConstStateVectors& from, const StateVectors& to) {
  const __m256 l2 = _mm256_set1_ps(c.l2_weight);
  const __m256 multiplier = _mm256_set1_ps(c.multiplier);
  const __m256 clip = _mm256_set1_ps(c.clip);
  const __m256 rate = _mm256_set1_ps(c.learning_rate);
  const __m256 momentum = _mm256_set1_ps(c.momentum);
  const __m256 one_minus_decay = _mm256_set1_ps(c.one_minus_decay);
  const __m256 one_minus_beta2 = _mm256_set1_ps(c.one_minus_beta2);
  const __m256 epsilon = _mm256_set1_ps(c.epsilon);
  const __m256 one_minus_ema_decay = _mm256_set1_ps(c.one_minus_ema_decay);
  const float* const w_from = from.weights + at;
  const float* const s0_from = from.slots[0] + at;
  const float* const s1_from = kKind == OptimizerKind::kMomentum ? nullptr : from.slots[1] + at;
  const float* const e_from = kEma ? from.ema + at : nullptr;
  float* const w_to = to.weights + at;
  float* const s0_to = to.slots[0] + at;
  float* const s1_to = kKind == OptimizerKind::kMomentum ? nullptr : to.slots[1] + at;
  float* const e_to = kEma ? to.ema + at : nullptr;

  ForEachGroup(
      count, [&](int i, int remaining) __attribute__((always_inline)) {
        const Writer writer{remaining};
        __m256 w = _mm256_load_ps(w_from + i);
        __m256 g = _mm256_fmadd_ps(l2, w, _mm256_load_ps(gradient + i));
        g = _mm256_mul_ps(_mm256_mul_ps(g, multiplier), clip);
        if constexpr (kKind == OptimizerKind::kMomentum) {
          const __m256 a = _mm256_fmadd_ps(_mm256_load_ps(s0_from + i), momentum, g);
          w = _mm256_fnmadd_ps(rate, a, w);
          writer.Store(s0_to + i, a);
        } else if constexpr (kKind == OptimizerKind::kRmsProp) {
          __m256 s = _mm256_load_ps(s0_from + i);
          s = _mm256_fmadd_ps(_mm256_sub_ps(_mm256_mul_ps(g, g), s), one_minus_decay, s);
          const __m256 step =
              _mm256_div_ps(_mm256_mul_ps(g, rate), _mm256_sqrt_ps(_mm256_add_ps(s, epsilon)));
          const __m256 m = _mm256_fmadd_ps(_mm256_load_ps(s1_from + i), momentum, step);
          w = _mm256_sub_ps(w, m);
          writer.Store(s0_to + i, s);
          writer.Store(s1_to + i, m);
        } else {
          __m256 m = _mm256_load_ps(s0_from + i);
          __m256 v = _mm256_load_ps(s1_from + i);
          m = _mm256_fmadd_ps(_mm256_sub_ps(g, m), one_minus_decay, m);
          v = _mm256_fmadd_ps(_mm256_sub_ps(_mm256_mul_ps(g, g), v), one_minus_beta2, v);
          w = _mm256_sub_ps(
              w, _mm256_div_ps(_mm256_mul_ps(m, rate), _mm256_add_ps(_mm256_sqrt_ps(v), epsilon)));
          writer.Store(s0_to + i, m);
          writer.Store(s1_to + i, v);
        }
        writer.Store(w_to + i, w);
        if constexpr (kEma) {
          const __m256 e = _mm256_load_ps(e_from + i);
          writer.Store(e_to + i, _mm256_fmadd_ps(_mm256_sub_ps(w, e), one_minus_ema_decay, e));
        }
      });
}

template <OptimizerKind kKind>
void UpdateWithOrWithoutEma(const float* gradient, const UpdateConstants& constants, int64_t at,
                            int count, const ConstStateVectors& from, const StateVectors& to) {
  if (to.ema != nullptr) {
    Update<kKind, true>(gradient, constants, at, count, from, to);
  } else {
    Update<kKind, false>(gradient, constants, at, count, from, to);
  }
}

}  // namespace

void AverageRun(absl::Span<const WeightedSource> sources, int count, float* out) {
  constexpr int kUnroll = 4;
  int i = 0;
  for (; i + kUnroll * kLanes <= count; i += kUnroll * kLanes) {
    __m256 sum[kUnroll];
    const __m256 first = _mm256_set1_ps(sources[0].ratio);
    for (int u = 0; u < kUnroll; ++u) {
      sum[u] = _mm256_mul_ps(first, LoadSource(sources[0], i + u * kLanes, kLanes));
    }
    for (const WeightedSource& source : sources.subspan(1)) {
      const __m256 ratio = _mm256_set1_ps(source.ratio);
      for (int u = 0; u < kUnroll; ++u) {
        sum[u] = _mm256_fmadd_ps(ratio, LoadSource(source, i + u * kLanes, kLanes), sum[u]);
      }
    }
    for (int u = 0; u < kUnroll; ++u) _mm256_store_ps(out + i + u * kLanes, sum[u]);
  }
  for (; i < count; i += kLanes) {
    const int left = count - i;
    __m256 sum = _mm256_mul_ps(_mm256_set1_ps(sources[0].ratio), LoadSource(sources[0], i, left));
    for (const WeightedSource& source : sources.subspan(1)) {
      sum = _mm256_fmadd_ps(_mm256_set1_ps(source.ratio), LoadSource(source, i, left), sum);
    }
    _mm256_store_ps(out + i, sum);
  }
  if (i % (2 * kLanes) != 0) _mm256_store_ps(out + i, _mm256_setzero_ps());
}

void UpdateRun(OptimizerKind kind, const float* gradient, const UpdateConstants& constants,
               int64_t at, int count, const ConstStateVectors& from, const StateVectors& to) {
  switch (kind) {
    case OptimizerKind::kMomentum:
      UpdateWithOrWithoutEma<OptimizerKind::kMomentum>(gradient, constants, at, count, from, to);
      return;
    case OptimizerKind::kRmsProp:
      UpdateWithOrWithoutEma<OptimizerKind::kRmsProp>(gradient, constants, at, count, from, to);
      return;
    case OptimizerKind::kAdam:
      UpdateWithOrWithoutEma<OptimizerKind::kAdam>(gradient, constants, at, count, from, to);
      return;
  }
  LOG(FATAL) << "optimizer kind " << static_cast<int>(kind);
}

void MovingStatisticRun(const float* statistic, float one_minus_decay, int64_t at, int count,
                        const ConstStateVectors& from, const StateVectors& to) {
  const __m256 rate = _mm256_set1_ps(one_minus_decay);
  ForEachGroup(count, [&](int i, int remaining) {
    const Writer writer{remaining};
    const __m256 v = _mm256_load_ps(from.weights + at + i);
    const __m256 delta = _mm256_sub_ps(_mm256_load_ps(statistic + i), v);
    const __m256 updated = _mm256_fmadd_ps(rate, delta, v);
    writer.Store(to.weights + at + i, updated);
    if (to.ema != nullptr) writer.Store(to.ema + at + i, updated);
  });
}

double SquaredNormRun(const float* gradient, const float* weights, float l2_weight,
                      float multiplier, int count) {
  const __m256 l2 = _mm256_set1_ps(l2_weight);
  const __m256 scale = _mm256_set1_ps(multiplier);
  __m256d low = _mm256_setzero_pd();
  __m256d high = _mm256_setzero_pd();
  for (int i = 0; i < count; i += kLanes) {
    __m256 g = _mm256_fmadd_ps(l2, _mm256_load_ps(weights + i), _mm256_load_ps(gradient + i));
    g = _mm256_mul_ps(g, scale);
    if (count - i < kLanes) g = _mm256_and_ps(g, LaneMask(count - i));
    const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(g));
    const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(g, 1));
    low = _mm256_fmadd_pd(a, a, low);
    high = _mm256_fmadd_pd(b, b, high);
  }
  alignas(32) double lanes[4];
  _mm256_store_pd(lanes, _mm256_add_pd(low, high));
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

void StoreFence() { _mm_sfence(); }

}  // namespace pushpull
