// Tested by tests/common/wire/gradient_codec_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "common/wire/codecs/non_finite.h"

#include <cstring>

#include "common/base/cpu_isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/wire/codecs/non_finite.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// An exponent of all ones means NaN or infinity. Both formats have it in their upper bits. Reads
// four vectors at a time and takes one branch for them, so memory is the bound.
template <typename Bits>
int64_t FindNonFiniteBits(const char* data, int64_t count) {
  using Tag = hn::CappedTag<Bits, 64 / sizeof(Bits)>;
  const hn::Repartition<uint8_t, Tag> bytes;
  constexpr Bits kExponent = sizeof(Bits) == 4 ? 0x7f800000 : 0x7f80;
  constexpr int kVectors = 4;
  const int64_t lanes = hn::Lanes(Tag());
  const auto exponent = hn::Set(Tag(), kExponent);
  const auto non_finite = [&](int64_t element) HWY_ATTR {
    const auto* from = reinterpret_cast<const uint8_t*>(data) + element * sizeof(Bits);
    const auto bits = hn::BitCast(Tag(), hn::LoadU(bytes, from));
    return hn::Eq(hn::And(bits, exponent), exponent);
  };
  int64_t i = 0;
  for (; i + kVectors * lanes <= count; i += kVectors * lanes) {
    const auto first = hn::Or(non_finite(i), non_finite(i + lanes));
    const auto second = hn::Or(non_finite(i + 2 * lanes), non_finite(i + 3 * lanes));
    if (!hn::AllFalse(Tag(), hn::Or(first, second))) break;
  }
  for (; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * sizeof(Bits), sizeof(Bits));
    if ((bits & kExponent) == kExponent) break;
  }
  return i;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

template <>
int64_t FindNonFiniteElement<uint32_t>(const char* data, int64_t count) {
  return PUSHPULL_FOR_CHOSEN_ISA(FindNonFiniteBits<uint32_t>)(data, count);
}

template <>
int64_t FindNonFiniteElement<uint16_t>(const char* data, int64_t count) {
  return PUSHPULL_FOR_CHOSEN_ISA(FindNonFiniteBits<uint16_t>)(data, count);
}

}  // namespace pushpull
#endif  // HWY_ONCE
