// Finds values that are not finite among floats, or among the upper halves of floats (AVX2).
#ifndef PUSHPULL_COMMON_WIRE_CODECS_NON_FINITE_H_
#define PUSHPULL_COMMON_WIRE_CODECS_NON_FINITE_H_

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace pushpull {

// An exponent of all ones means NaN or infinity. Both formats have it in their upper bits.
template <typename Bits>
inline constexpr Bits kExponentBits = sizeof(Bits) == 4 ? 0x7f800000 : 0x7f80;

// Returns the index of the first non-finite element, or `count` if there is none. Bits: uint32_t
// for float32, uint16_t for bfloat16. `data` may lie at any address. Reads 128 bytes at a time and
// takes one branch for them, so memory is the bound.
template <typename Bits>
int64_t FindNonFiniteElement(const char* data, int64_t count) {
  constexpr int kVectors = 4;
  constexpr int64_t kBlock = kVectors * sizeof(__m256i) / sizeof(Bits);
  const __m256i exponent = sizeof(Bits) == 4
                               ? _mm256_set1_epi32(static_cast<int>(kExponentBits<uint32_t>))
                               : _mm256_set1_epi16(static_cast<short>(kExponentBits<uint16_t>));
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    const auto* const vectors = reinterpret_cast<const __m256i*>(data + i * sizeof(Bits));
    __m256i bad = _mm256_setzero_si256();
    for (int j = 0; j < kVectors; ++j) {
      const __m256i bits = _mm256_and_si256(_mm256_loadu_si256(vectors + j), exponent);
      const __m256i equal = sizeof(Bits) == 4 ? _mm256_cmpeq_epi32(bits, exponent)
                                              : _mm256_cmpeq_epi16(bits, exponent);
      bad = _mm256_or_si256(bad, equal);
    }
    if (!_mm256_testz_si256(bad, bad)) break;
  }
  for (; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * sizeof(Bits), sizeof(Bits));
    if ((bits & kExponentBits<Bits>) == kExponentBits<Bits>) break;
  }
  return i;
}

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_CODECS_NON_FINITE_H_
