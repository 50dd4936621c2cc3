// Tested by tests/ps_server/store/apply_pass_test.cc.
#include "ps_server/store/apply_kernels.h"

#include <cstring>

#include "ps_server/store/lanes.h"

namespace pushpull {
namespace {

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
  SquareSum sum;
  for (int i = 0; i < count; i += kLanes) {
    const __m256 g = _mm256_fmadd_ps(l2, _mm256_load_ps(weights + i), _mm256_load_ps(gradient + i));
    sum.Add(_mm256_mul_ps(g, scale), count - i);
  }
  return sum.Total();
}

void StoreFence() { _mm_sfence(); }

}  // namespace pushpull
