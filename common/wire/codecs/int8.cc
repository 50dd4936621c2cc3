// clang-format off
// Tested by tests/common/wire/int8_codec_test.cc.
// int8 blocks. A chunk is cut into blocks of 32 elements; the last one may be shorter. A block is
//
//   bytes     contents
//   0, 1      scale: a positive bfloat16, little endian
//   2 ...     one signed byte q per element; the element's value is scale * q
//
//   scale = largest magnitude of the block / 127, rounded up to a bfloat16, at least 2^-126
//   q     = element / scale, rounded to nearest, ties to even; -127 to 127
//
// so the decoded value is within scale / 2 of the element, and zeros stay zeros. The scale is never
// denormal: threads that flush denormals to zero would divide by zero.
//
// A block in which an element is NaN, infinite or larger than 127 * 0x7bff (a bfloat16, 2.6e36) has
// a scale that is not finite, and q = 0 exactly for its other elements. A scale above 0x7bff, or a
// negative one, counts as not finite too: 128 times 0x7bff is the largest magnitude that decodes.
//
// foreach_target.h includes this file again for each instruction set better than that of the build.
// clang-format on
#include <algorithm>
#include <bit>
#include <cstring>

#include "common/base/cpu_isa.h"
#include "common/wire/gradient_codec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/wire/codecs/int8.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Integers = hn::RebindToSigned<Floats>;
using Codes = hn::Rebind<int8_t, Floats>;
constexpr int kLanes = HWY_LANES(float) < 16 ? HWY_LANES(float) : 16;

constexpr int64_t kBlock = 32;
constexpr int64_t kScaleBytes = sizeof(uint16_t);
constexpr int64_t kBlockBytes = kScaleBytes + kBlock;

constexpr uint32_t kMagnitude = 0x7fffffffu;  // the bits of a float without its sign
constexpr uint32_t kInfinity = 0x7f800000u;
constexpr uint16_t kSmallestScale = 0x0080;  // 2^-126
constexpr uint16_t kLargestScale = 0x7bff;   // (2 - 2^-7) * 2^120
constexpr uint16_t kInfiniteScale = 0x7f80;
constexpr uint16_t kNanScale = 0x7fc0;

// Returns the scale of a block with this largest magnitude, given by its bits; above kLargestScale
// if the block cannot be encoded.
uint16_t ScaleFor(uint32_t magnitude) {
  if (magnitude >= kInfinity) return kInfiniteScale;
  const uint32_t quotient = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) / 127.0f);
  return std::max(kSmallestScale, static_cast<uint16_t>((quotient + 0xffffu) >> 16));
}

float ScaleValue(uint16_t scale) {
  return std::bit_cast<float>(static_cast<uint32_t>(scale) << 16);
}

uint16_t LoadScale(const char* block) {
  uint16_t scale;
  std::memcpy(&scale, block, kScaleBytes);
  return scale;
}

// Returns the bits of the largest magnitude among 32 floats. Magnitudes are compared as integers:
// their order is that of the floats, and NaN comes last.
uint32_t LargestMagnitude(const float* values) {
  auto largest = hn::Zero(Integers());
  for (int i = 0; i < kBlock; i += kLanes) {
    const auto magnitude = hn::Abs(hn::LoadU(Floats(), values + i));
    largest = hn::Max(largest, hn::BitCast(Integers(), magnitude));
  }
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(Integers(), largest)));
}

// Encodes a block that has an element without a finite code.
void EncodeNonFinite(const float* from, char* to) {
  uint16_t scale = 0;
  for (int i = 0; i < kBlock; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(from[i]) & kMagnitude;
    const bool fits = ScaleFor(magnitude) <= kLargestScale;
    to[kScaleBytes + i] = static_cast<char>(fits ? 0 : from[i] < 0 ? -1 : 1);
    if (!fits && scale == 0) scale = magnitude > kInfinity ? kNanScale : kInfiniteScale;
  }
  std::memcpy(to, &scale, kScaleBytes);
}

// Encodes 32 floats into 34 bytes. One division per element, so that no element is farther than
// half a scale from its code; at eight per five cycles it is faster than memory brings them.
void EncodeBlock(const float* from, char* to) {
  const uint16_t scale = ScaleFor(LargestMagnitude(from));
  if (scale > kLargestScale) return EncodeNonFinite(from, to);
  const auto divisor = hn::Set(Floats(), ScaleValue(scale));
  std::memcpy(to, &scale, kScaleBytes);
  auto* const codes = reinterpret_cast<int8_t*>(to + kScaleBytes);
  for (int i = 0; i < kBlock; i += kLanes) {
    const auto q = hn::NearestInt(hn::Div(hn::LoadU(Floats(), from + i), divisor));
    hn::StoreU(hn::DemoteTo(Codes(), q), Codes(), codes + i);
  }
}

// Decodes 34 bytes into 32 floats.
void DecodeBlock(const char* from, float* out) {
  const auto scale = hn::Set(Floats(), ScaleValue(LoadScale(from)));
  const auto* const codes = reinterpret_cast<const int8_t*>(from + kScaleBytes);
  for (int i = 0; i < kBlock; i += kLanes) {
    const auto q = hn::PromoteTo(Integers(), hn::LoadU(Codes(), codes + i));
    hn::StoreU(hn::Mul(hn::ConvertTo(Floats(), q), scale), Floats(), out + i);
  }
}

void Encode(absl::Span<const float> chunk, char* bytes) {
  const auto count = static_cast<int64_t>(chunk.size());
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock, bytes += kBlockBytes) {
    EncodeBlock(chunk.data() + i, bytes);
  }
  if (i == count) return;
  float rest[kBlock] = {};
  char encoded[kBlockBytes];
  std::copy(chunk.begin() + i, chunk.end(), rest);
  EncodeBlock(rest, encoded);
  std::memcpy(bytes, encoded, kScaleBytes + count - i);
}

void Decode(const char* bytes, int64_t elements, int64_t begin, int64_t count, float* out) {
  const int64_t end = begin + count;
  while (begin < end) {
    const int64_t first = begin / kBlock * kBlock;  // of the block
    const int64_t size = std::min(kBlock, elements - first);
    const int64_t next = std::min(end, first + size);
    const char* const block = bytes + first / kBlock * kBlockBytes;
    if (next - begin == kBlock) {
      DecodeBlock(block, out);
    } else {
      char whole[kBlockBytes] = {};
      float decoded[kBlock];
      std::memcpy(whole, block, kScaleBytes + size);
      DecodeBlock(whole, decoded);
      std::copy(decoded + (begin - first), decoded + (next - first), out);
    }
    out += next - begin;
    begin = next;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {
namespace {

using HWY_NAMESPACE::kBlock;
using HWY_NAMESPACE::kBlockBytes;
using HWY_NAMESPACE::kLargestScale;
using HWY_NAMESPACE::kScaleBytes;
using HWY_NAMESPACE::LoadScale;

class Int8 final : public GradientCodec {
 public:
  ps::GradientEncoding encoding() const override { return ps::INT8_BLOCKS; }
  absl::string_view flag() const override { return "int8"; }
  bool needs_error_feedback() const override { return true; }
  int64_t EncodedBytes(int64_t elements) const override {
    return elements + (elements + kBlock - 1) / kBlock * kScaleBytes;
  }

  void Encode(absl::Span<const float> chunk, char* bytes) const override {
    PUSHPULL_FOR_CHOSEN_ISA(Encode)(chunk, bytes);
  }

  void Decode(const char* bytes, int64_t elements, int64_t begin, int64_t count,
              float* out) const override {
    PUSHPULL_FOR_CHOSEN_ISA(Decode)(bytes, elements, begin, count, out);
  }

  int64_t FindNonFinite(const char* bytes, int64_t elements) const override {
    for (int64_t first = 0; first < elements; first += kBlock, bytes += kBlockBytes) {
      if (LoadScale(bytes) <= kLargestScale) continue;
      // In a block of our making, the elements with q = 0 are finite.
      const char* const codes = bytes + kScaleBytes;
      const char* const end = codes + std::min(kBlock, elements - first);
      const char* const bad = std::find_if(codes, end, [](char q) { return q != 0; });
      return bad == end ? first : first + (bad - codes);
    }
    return elements;
  }
};

}  // namespace

const GradientCodec& Int8Codec() {
  static const auto* const codec = new Int8();
  return *codec;
}

}  // namespace pushpull
#endif  // HWY_ONCE
