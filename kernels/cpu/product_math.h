// How the matrix products in gemm.cc multiply two packed operands. Included like simd.h, once for
// each instruction set.
#if defined(PUSHPULL_KERNELS_CPU_PRODUCT_MATH_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_KERNELS_CPU_PRODUCT_MATH_H_
#undef PUSHPULL_KERNELS_CPU_PRODUCT_MATH_H_
#else
#define PUSHPULL_KERNELS_CPU_PRODUCT_MATH_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/bfloat16.h"
#include "kernels/cpu/panels.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using WideTag = hn::CappedTag<float, 16>;
using NarrowTag = hn::CappedTag<float, kPanelAlignment>;
constexpr int kWideLanes = std::min<int>(HWY_LANES(float), 16);

// The first lanes of a wide vector, which has 4, 8 or 16.
template <typename Tag, typename V>
HWY_INLINE hn::Vec<Tag> LowerLanes(Tag tag, V wide) {
  if constexpr (kWideLanes <= kPanelAlignment) {
    return wide;
  } else {
    return hn::LowerHalf(tag, wide);
  }
}

// Each of the four classes below has
//   Number            the type of the operands' numbers
//   kDepth            how many neighbouring terms of the sum one MulAdd adds
//   kStep             how many terms one step of the loop adds: kDepth, or two with kDepth 1, of
//                     which the second is added first
//   Operand<Tag>      a vector of an operand: kDepth numbers per lane
//   Load, Broadcast   read a vector of an operand, or kDepth numbers into all of its lanes
//   Lower             the lower lanes of an Operand<WideTag>
//   MulAdd            returns sum + a * b for each lane
struct FloatMath {
  using Number = float;
  static constexpr int kDepth = 1;
  static constexpr int kStep = 1;
  template <typename Tag>
  using Operand = hn::Vec<Tag>;
  template <typename Tag>
  static HWY_INLINE Operand<Tag> Load(Tag tag, const float* p) {
    return hn::LoadU(tag, p);
  }
  template <typename Tag>
  static HWY_INLINE Operand<Tag> Broadcast(Tag tag, const float* p) {
    return hn::Set(tag, *p);
  }
  static HWY_INLINE Operand<NarrowTag> Lower(Operand<WideTag> wide) {
    return LowerLanes(NarrowTag(), wide);
  }
  template <typename Tag>
  static HWY_INLINE hn::Vec<Tag> MulAdd(Tag, Operand<Tag> a, Operand<Tag> b, hn::Vec<Tag> sum) {
    return hn::MulAdd(a, b, sum);
  }
};

// BfloatAsFloat, as floats. The product of two is exact in a float. Needs FlushDenormals.
struct BfloatAsFloatMath : FloatMath {
  static constexpr int kStep = 2;
};

template <typename Tag>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<Tag>> LoadPairs(Tag, const Bfloat16* p) {
  return hn::LoadU(hn::RebindToUnsigned<Tag>(), reinterpret_cast<const uint32_t*>(p));
}

template <typename Tag>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<Tag>> BroadcastPair(Tag, const Bfloat16* p) {
  uint32_t pair;
  std::memcpy(&pair, p, sizeof(pair));
  return hn::Set(hn::RebindToUnsigned<Tag>(), pair);
}

// Pairs of Bfloat16 on a CPU without instructions for them: the two numbers become floats, whose
// product is exact in a float. Needs FlushDenormals. It is slower than BfloatAsFloatMath; operators
// choose it in tests only, which check the packing of pairs on every CPU.
struct SplitPairMath {
  using Number = Bfloat16;
  static constexpr int kDepth = 2;
  static constexpr int kStep = 2;
  template <typename Tag>
  struct Operand {
    hn::Vec<Tag> first, second;
  };
  template <typename Tag>
  static HWY_INLINE Operand<Tag> Split(Tag tag, hn::Vec<hn::RebindToUnsigned<Tag>> pairs) {
    const auto upper = hn::Set(hn::RebindToUnsigned<Tag>(), 0xffff0000);
    return {hn::BitCast(tag, hn::ShiftLeft<16>(pairs)), hn::BitCast(tag, hn::And(pairs, upper))};
  }
  template <typename Tag>
  static HWY_INLINE Operand<Tag> Load(Tag tag, const Bfloat16* p) {
    return Split(tag, LoadPairs(tag, p));
  }
  template <typename Tag>
  static HWY_INLINE Operand<Tag> Broadcast(Tag tag, const Bfloat16* p) {
    return Split(tag, BroadcastPair(tag, p));
  }
  static HWY_INLINE Operand<NarrowTag> Lower(Operand<WideTag> wide) {
    return {LowerLanes(NarrowTag(), wide.first), LowerLanes(NarrowTag(), wide.second)};
  }
  template <typename Tag>
  static HWY_INLINE hn::Vec<Tag> MulAdd(Tag, Operand<Tag> a, Operand<Tag> b, hn::Vec<Tag> sum) {
    return hn::MulAdd(a.first, b.first, hn::MulAdd(a.second, b.second, sum));
  }
};

#if HWY_TARGET == HWY_AVX3
// Pairs of Bfloat16 with the instruction of AVX512-BF16. Highway 1.0.3 has no target for it, and
// the compiler offers it only to functions that are compiled for it as a whole.
struct PairMath {
  using Number = Bfloat16;
  static constexpr int kDepth = 2;
  static constexpr int kStep = 2;
  template <typename Tag>
  using Operand = hn::Vec<hn::RebindToUnsigned<Tag>>;
  template <typename Tag>
  static HWY_INLINE Operand<Tag> Load(Tag tag, const Bfloat16* p) {
    return LoadPairs(tag, p);
  }
  template <typename Tag>
  static HWY_INLINE Operand<Tag> Broadcast(Tag tag, const Bfloat16* p) {
    return BroadcastPair(tag, p);
  }
  static HWY_INLINE Operand<NarrowTag> Lower(Operand<WideTag> wide) {
    return LowerLanes(hn::RebindToUnsigned<NarrowTag>(), wide);
  }
  template <typename Tag>
  static HWY_INLINE hn::Vec<Tag> MulAdd(Tag, Operand<Tag> a, Operand<Tag> b, hn::Vec<Tag> sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
};
#endif

// Calls add(i) for the numbers i of a sum of `count` of them, in the order in which the product
// adds them. With pairs, i is the first of two.
template <typename Math, typename F>
HWY_INLINE void ForEachStep(int64_t count, F add) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < count; i += Math::kStep) {
    if constexpr (Math::kStep > Math::kDepth) add(i + 1);
    add(i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#endif  // PUSHPULL_KERNELS_CPU_PRODUCT_MATH_H_
