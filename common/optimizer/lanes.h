// Eight float32 elements at a time, with AVX2 and FMA: what the kernels of this folder share. Every
// operation except SquareSum rounds the same in any lane, so the result does not depend on how a
// vector is cut into runs. For kernels only; not for headers that others include.
#ifndef PUSHPULL_COMMON_OPTIMIZER_LANES_H_
#define PUSHPULL_COMMON_OPTIMIZER_LANES_H_

#include <immintrin.h>

namespace pushpull {

// +, -, * and / work element by element and round once each (-ffp-contract=off).
using Lanes = __m256;
inline constexpr int kLanes = 8;

inline Lanes Broadcast(float value) { return _mm256_set1_ps(value); }
// Returns a * b + c, rounded once.
inline Lanes Fma(Lanes a, Lanes b, Lanes c) { return _mm256_fmadd_ps(a, b, c); }
// Returns c - a * b, rounded once.
inline Lanes FmaNegated(Lanes a, Lanes b, Lanes c) { return _mm256_fnmadd_ps(a, b, c); }
inline Lanes Sqrt(Lanes a) { return _mm256_sqrt_ps(a); }

// Returns a mask of all ones in the lanes below count.
inline Lanes LaneMask(int count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane));
}

// Stores results and zeroes the lanes past the end. Every result is stored here, so that the choice
// to bypass the caches is made in one place.
struct Writer {
  int remaining;  // elements left in the run, this group included
  void Store(float* to, Lanes value) const {
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

// Sums squares in double, in an order that depends only on the number of Add calls.
class SquareSum {
 public:
  // Adds the squares of the first `remaining` lanes, or of all if there are more.
  void Add(Lanes x, int remaining) {
    if (remaining < kLanes) x = _mm256_and_ps(x, LaneMask(remaining));
    const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    low_ = _mm256_fmadd_pd(a, a, low_);
    high_ = _mm256_fmadd_pd(b, b, high_);
  }
  double Total() const {
    alignas(32) double lanes[4];
    _mm256_store_pd(lanes, _mm256_add_pd(low_, high_));
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  }

 private:
  __m256d low_ = _mm256_setzero_pd();
  __m256d high_ = _mm256_setzero_pd();
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_OPTIMIZER_LANES_H_
