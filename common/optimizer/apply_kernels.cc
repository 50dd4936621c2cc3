// Tested by tests/common/optimizer/apply_pass_test.cc.
#include "common/optimizer/apply_kernels.h"

#include <cstring>

#include "common/optimizer/lanes.h"

namespace pushpull {
namespace {

// A source whose elements can be read as floats, at any byte alignment.
struct FloatSource {
  const char* data;
  float ratio;
};

// Loads 8 elements; lanes from count on are zero.
__m256 LoadSource(const FloatSource& source, int64_t element, int count) {
  const char* const from = source.data + element * sizeof(float);
  if (count >= kLanes) return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  alignas(32) float lanes[kLanes] = {};
  std::memcpy(lanes, from, count * sizeof(float));
  return _mm256_load_ps(lanes);
}

// Computes out[i] = r_0 * s_0[i], or with `add` out[i] = fma(r_0, s_0[i], out[i]), then adds the
// other sources. The sums stay in registers, so each element of `out` is written once per call.
template <bool add>
void AverageFloats(absl::Span<const FloatSource> sources, int count, float* out) {
  constexpr int kUnroll = 4;
  const auto begin_sum = [&](int i, __m256 value) {
    const __m256 ratio = _mm256_set1_ps(sources[0].ratio);
    if constexpr (add) return _mm256_fmadd_ps(ratio, value, _mm256_load_ps(out + i));
    return _mm256_mul_ps(ratio, value);
  };
  int i = 0;
  for (; i + kUnroll * kLanes <= count; i += kUnroll * kLanes) {
    __m256 sum[kUnroll];
    for (int u = 0; u < kUnroll; ++u) {
      const int at = i + u * kLanes;
      sum[u] = begin_sum(at, LoadSource(sources[0], at, kLanes));
    }
    for (const FloatSource& source : sources.subspan(1)) {
      const __m256 ratio = _mm256_set1_ps(source.ratio);
      for (int u = 0; u < kUnroll; ++u) {
        sum[u] = _mm256_fmadd_ps(ratio, LoadSource(source, i + u * kLanes, kLanes), sum[u]);
      }
    }
    for (int u = 0; u < kUnroll; ++u) _mm256_store_ps(out + i + u * kLanes, sum[u]);
  }
  for (; i < count; i += kLanes) {
    const int left = count - i;
    __m256 sum = begin_sum(i, LoadSource(sources[0], i, left));
    for (const FloatSource& source : sources.subspan(1)) {
      sum = _mm256_fmadd_ps(_mm256_set1_ps(source.ratio), LoadSource(source, i, left), sum);
    }
    _mm256_store_ps(out + i, sum);
  }
  if (i % (2 * kLanes) != 0) _mm256_store_ps(out + i, _mm256_setzero_ps());
}

}  // namespace

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
  const __m256 rate = _mm256_set1_ps(one_minus_decay);
  const bool replaces = one_minus_decay == 1.0f;
  ForEachGroup(count, [&](int i, int remaining) {
    const Writer writer{remaining};
    const __m256 v = _mm256_load_ps(from.weights + at + i);
    const __m256 s = _mm256_load_ps(statistic + i);
    // Where v becomes s, it is copied: the sum v + (s - v) would add a rounding error.
    const __m256 updated = replaces ? s : _mm256_fmadd_ps(rate, _mm256_sub_ps(s, v), v);
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
