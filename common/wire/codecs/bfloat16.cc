// Tested by tests/common/wire/gradient_codec_test.cc.
// bfloat16: the upper half of each float, rounded to nearest, ties to even; little endian. Values
// beyond its range become infinite.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "common/wire/codecs/non_finite.h"
#include "common/wire/gradient_codec.h"

namespace pushpull {
namespace {

constexpr int64_t kLanes = 8;
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

// Encodes 16 floats at `from` into 32 bytes at `to`.
void EncodePair(const float* from, char* to) {
  const auto* const bits = reinterpret_cast<const __m256i*>(from);
  const __m256i low = Round(_mm256_loadu_si256(bits));
  const __m256i high = Round(_mm256_loadu_si256(bits + 1));
  // The pack instruction works on each 128-bit half and leaves the quarters in the order 0 2 1 3;
  // the permutation puts them in order.
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), packed);
}

class Bfloat16 final : public GradientCodec {
 public:
  ps::GradientEncoding encoding() const override { return ps::BFLOAT16; }
  absl::string_view flag() const override { return "bf16"; }
  int64_t EncodedBytes(int64_t elements) const override { return elements * kBytes; }

  void Encode(absl::Span<const float> chunk, char* bytes) const override {
    const auto count = static_cast<int64_t>(chunk.size());
    int64_t i = 0;
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      EncodePair(chunk.data() + i, bytes + i * kBytes);
    }
    float rest[2 * kLanes] = {};
    char encoded[sizeof(rest) / 2];
    std::copy(chunk.begin() + i, chunk.end(), rest);
    EncodePair(rest, encoded);
    std::memcpy(bytes + i * kBytes, encoded, (count - i) * kBytes);
  }

  void Decode(const char* bytes, int64_t /*elements*/, int64_t begin, int64_t count,
              float* out) const override {
    const char* const from = bytes + begin * kBytes;
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * kBytes));
      const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
      _mm256_storeu_ps(out + i, _mm256_castsi256_ps(bits));
    }
    for (; i < count; ++i) {
      uint16_t half;
      std::memcpy(&half, from + i * kBytes, kBytes);
      const uint32_t bits = static_cast<uint32_t>(half) << 16;
      std::memcpy(out + i, &bits, sizeof(bits));
    }
  }

  int64_t FindNonFinite(const char* bytes, int64_t elements) const override {
    return FindNonFiniteElement<uint16_t>(bytes, elements);
  }

 private:
  static constexpr int64_t kBytes = sizeof(uint16_t);
};

}  // namespace

const GradientCodec& Bfloat16Codec() {
  static const auto* const codec = new Bfloat16();
  return *codec;
}

}  // namespace pushpull
