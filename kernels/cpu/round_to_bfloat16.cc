#include "kernels/cpu/round_to_bfloat16.h"

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "glog/logging.h"

namespace pushpull {
namespace {

constexpr size_t kLanes = 8;
constexpr uint32_t kSign = 0x80000000u;
constexpr uint32_t kInfinity = 0x7f800000u;
constexpr uint32_t kHalfMinusOne = 0x7fffu;  // half a unit of the last kept bit, less one
constexpr uint32_t kQuietNan = 0x00400000u;

// Rounds the bits of eight floats to nearest, ties to even: adds half a unit of the last kept bit,
// less one if that bit is even, and shifts the upper half down. NaNs take another path, since the
// addition could carry them into infinity or zero. The results are in the lower halves of the
// lanes. About ten integer operations on registers for 32 bytes read, so memory is the bound.
__m256i Round(__m256i bits) {
  const __m256i magnitude = _mm256_andnot_si256(_mm256_set1_epi32(kSign), bits);
  const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(kInfinity));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(kHalfMinusOne)));
  const __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(kQuietNan));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, nan, is_nan), 16);
}

}  // namespace

void RoundToBfloat16(absl::Span<const float> from, absl::Span<Bfloat16> to) {
  CHECK_EQ(from.size(), to.size());
  size_t i = 0;
  for (; i + 2 * kLanes <= from.size(); i += 2 * kLanes) {
    const auto* const bits = reinterpret_cast<const __m256i*>(from.data() + i);
    const __m256i low = Round(_mm256_loadu_si256(bits));
    const __m256i high = Round(_mm256_loadu_si256(bits + 1));
    // The pack instruction works on each 128-bit half and leaves the quarters in the order 0 2 1 3;
    // the permutation puts them in order.
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.data() + i), packed);
  }
  for (; i < from.size(); ++i) to[i] = ToBfloat16(from[i]);
}

}  // namespace pushpull
