#include "common/gradient_encoding.h"

#include <immintrin.h>

#include <bit>
#include <cstddef>

#include "glog/logging.h"

namespace pushpull {
namespace {

constexpr size_t kLanes = 8;
constexpr uint32_t kSign = 0x80000000u;
constexpr uint32_t kInfinity = 0x7f800000u;
constexpr uint32_t kHalfMinusOne = 0x7fffu;  // of the last place that stays
constexpr uint32_t kQuietNan = 0x00400000u;

uint16_t Encode(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & ~kSign) > kInfinity) {
    bits |= kQuietNan;
  } else {
    bits += kHalfMinusOne + ((bits >> 16) & 1u);
  }
  return static_cast<uint16_t>(bits >> 16);
}

// The same of eight; the result is in the lower halves of the lanes.
__m256i Encode(__m256i bits) {
  const __m256i magnitude = _mm256_andnot_si256(_mm256_set1_epi32(kSign), bits);
  const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(kInfinity));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(kHalfMinusOne)));
  const __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(kQuietNan));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, nan, is_nan), 16);
}

}  // namespace

std::optional<int64_t> BytesPerElement(ps::GradientEncoding encoding) {
  switch (encoding) {
    case ps::FLOAT32:
      return 4;
    case ps::BFLOAT16:
      return 2;
    default:
      return std::nullopt;
  }
}

void EncodeBfloat16(absl::Span<const float> from, absl::Span<uint16_t> to) {
  CHECK_EQ(from.size(), to.size());
  size_t i = 0;
  for (; i + 2 * kLanes <= from.size(); i += 2 * kLanes) {
    const auto* const bits = reinterpret_cast<const __m256i*>(from.data() + i);
    const __m256i low = Encode(_mm256_loadu_si256(bits));
    const __m256i high = Encode(_mm256_loadu_si256(bits + 1));
    // Packing works within halves of 128 bits: 0 2 1 3 puts them in order.
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.data() + i), packed);
  }
  for (; i < from.size(); ++i) to[i] = Encode(from[i]);
}

}  // namespace pushpull
