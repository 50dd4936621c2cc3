// Tested by tests/common/wire/gradient_codec_test.cc.
// bfloat16: the upper half of each float, rounded to nearest, ties to even; little endian. Values
// beyond its range become infinite.
//
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include <cstring>

#include "common/base/cpu_isa.h"
#include "common/wire/codecs/non_finite.h"
#include "common/wire/gradient_codec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/wire/codecs/bfloat16.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Bits = hn::CappedTag<uint32_t, 16>;
using SignedBits = hn::RebindToSigned<Bits>;
using Halves = hn::Rebind<uint16_t, Bits>;
constexpr int64_t kLanes = HWY_LANES(uint32_t) < 16 ? HWY_LANES(uint32_t) : 16;

// Rounds the bits of floats to nearest, ties to even: adds half a unit of the last kept bit, less
// one if that bit is even, and keeps the upper half. NaNs take another path, since the addition
// could carry them into infinity or zero. About ten integer operations on registers for each vector
// read, so memory is the bound.
HWY_INLINE hn::Vec<Halves> Round(hn::Vec<Bits> bits) {
  const auto magnitude = hn::And(bits, hn::Set(Bits(), 0x7fffffffu));
  const auto is_nan =
      hn::Gt(hn::BitCast(SignedBits(), magnitude), hn::Set(SignedBits(), 0x7f800000));
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(Bits(), 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(Bits(), 0x7fff)));
  const auto quiet_nan = hn::Or(bits, hn::Set(Bits(), 0x00400000));
  const auto chosen = hn::IfThenElse(hn::RebindMask(Bits(), is_nan), quiet_nan, rounded);
  return hn::DemoteTo(Halves(), hn::BitCast(SignedBits(), hn::ShiftRight<16>(chosen)));
}

HWY_INLINE void EncodeVector(const float* from, uint16_t* to) {
  const hn::RebindToFloat<Bits> floats;
  hn::StoreU(Round(hn::BitCast(Bits(), hn::LoadU(floats, from))), Halves(), to);
}

void Encode(const float* chunk, int64_t count, char* bytes) {
  auto* const to = reinterpret_cast<uint16_t*>(bytes);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) EncodeVector(chunk + i, to + i);
  if (i == count) return;
  float rest[kLanes] = {};
  uint16_t encoded[kLanes];
  std::memcpy(rest, chunk + i, (count - i) * sizeof(float));
  EncodeVector(rest, encoded);
  std::memcpy(to + i, encoded, (count - i) * sizeof(uint16_t));
}

HWY_INLINE void DecodeVector(const uint16_t* from, float* to) {
  const hn::RebindToFloat<Bits> floats;
  const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(Bits(), hn::LoadU(Halves(), from)));
  hn::StoreU(hn::BitCast(floats, bits), floats, to);
}

void Decode(const char* bytes, int64_t count, float* out) {
  const auto* const from = reinterpret_cast<const uint16_t*>(bytes);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) DecodeVector(from + i, out + i);
  if (i == count) return;
  uint16_t rest[kLanes] = {};
  float decoded[kLanes];
  std::memcpy(rest, from + i, (count - i) * sizeof(uint16_t));
  DecodeVector(rest, decoded);
  std::memcpy(out + i, decoded, (count - i) * sizeof(float));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {
namespace {

class Bfloat16 final : public GradientCodec {
 public:
  ps::GradientEncoding encoding() const override { return ps::BFLOAT16; }
  absl::string_view flag() const override { return "bf16"; }
  int64_t EncodedBytes(int64_t elements) const override { return elements * kBytes; }

  void Encode(absl::Span<const float> chunk, char* bytes) const override {
    PUSHPULL_FOR_CHOSEN_ISA(Encode)(chunk.data(), static_cast<int64_t>(chunk.size()), bytes);
  }

  void Decode(const char* bytes, int64_t /*elements*/, int64_t begin, int64_t count,
              float* out) const override {
    PUSHPULL_FOR_CHOSEN_ISA(Decode)(bytes + begin * kBytes, count, out);
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
#endif  // HWY_ONCE
