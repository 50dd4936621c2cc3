// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "kernels/cpu/image_rows.h"

#include <algorithm>
#include <utility>

#include "common/base/cpu_isa.h"
#include "kernels/image_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/image_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

using Ints = hn::RebindToSigned<Tag>;
using Bytes = hn::Repartition<uint8_t, Tag>;
static_assert(kRowAlignment % kVectorLanes == 0);

// Between (kernels/image_math.h) of vectors. There is no fused multiply-add, which rounds
// differently.
template <typename V>
HWY_INLINE V BetweenVectors(V low, V high, V weight) {
  return hn::Add(low, hn::Mul(hn::Sub(high, low), weight));
}

// Loads the 16 bytes of each block of four elements: [kBlocks, 16].
template <int64_t kBlocks>
HWY_INLINE auto LoadBlocks(const uint8_t* row, const int32_t* begin) {
  if constexpr (kBlocks == 1) {
    return hn::LoadU(hn::FixedTag<uint8_t, 16>(), row + begin[0]);
  } else {
    constexpr int64_t kHalf = kBlocks / 2;
    return hn::Combine(hn::FixedTag<uint8_t, kBlocks * 16>(), LoadBlocks<kHalf>(row, begin + kHalf),
                       LoadBlocks<kHalf>(row, begin));
  }
}

// The elements of the blocks that the shuffle names, as floats.
HWY_INLINE Vector TakeElements(hn::Vec<Bytes> blocks, const uint8_t* shuffle) {
  const auto bytes = hn::TableLookupBytesOr0(blocks, hn::LoadU(Bytes(), shuffle));
  return hn::ConvertTo(Tag(), hn::BitCast(Ints(), bytes));
}

}  // namespace

void ResizeBlocks(const RowTaps& taps, const uint8_t* row, float* out) {
  const int32_t* const begin = taps.block_begin.data();
  const uint8_t* const low = taps.low_shuffle.data();
  const uint8_t* const high = taps.high_shuffle.data();
  const float* const weight = taps.weight.data();
  for (int64_t i = 0; i < taps.size; i += kVectorLanes) {
    const auto blocks = LoadBlocks<kVectorLanes / 4>(row, begin + i / 4);
    hn::StoreU(BetweenVectors(TakeElements(blocks, low + 4 * i), TakeElements(blocks, high + 4 * i),
                              hn::LoadU(Tag(), weight + i)),
               Tag(), out + i);
  }
}

void ResizeFloats(const RowTaps& taps, const float* row, float* out) {
  for (int64_t i = 0; i < taps.size; i += kVectorLanes) {
    const auto low = hn::GatherIndex(Tag(), row, hn::LoadU(Ints(), taps.low.data() + i));
    const auto high = hn::GatherIndex(Tag(), row, hn::LoadU(Ints(), taps.high.data() + i));
    hn::StoreU(BetweenVectors(low, high, hn::LoadU(Tag(), taps.weight.data() + i)), Tag(), out + i);
  }
}

void Blend(int64_t size, const float* top, const float* bottom, float weight, float* out) {
  const auto weights = hn::Set(Tag(), weight);
  const auto scale = hn::Set(Tag(), 2.0f / 255.0f);
  const auto one = hn::Set(Tag(), 1.0f);
  const auto at = [&](int64_t i) HWY_ATTR {
    const auto value =
        BetweenVectors(hn::LoadU(Tag(), top + i), hn::LoadU(Tag(), bottom + i), weights);
    return hn::Sub(hn::Mul(value, scale), one);
  };
  int64_t i = 0;
  for (; i + kVectorLanes <= size; i += kVectorLanes) FullLanes().Store(out + i, at(i));
  if (i < size) SomeLanes(size - i).Store(out + i, at(i));
}

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

int64_t PaddedRow(int64_t elements) {
  return (elements + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

void RowResizer::Begin(const RowResize& resize) {
  if (resize == resize_) return;
  resize_ = resize;
  const int channels = resize.channels;
  taps_.size = PaddedRow(int64_t{1} * resize.out_size * channels);
  taps_.low.assign(taps_.size, 0);
  taps_.high.assign(taps_.size, 0);
  taps_.weight.assign(taps_.size, 0.0f);
  for (int x = 0; x < resize.out_size; ++x) {
    ResizeTap tap = ResizeTapOf(x, resize.in_size, resize.out_size);
    if (resize.mirrored) {
      tap.low = resize.in_size - 1 - tap.low;
      tap.high = resize.in_size - 1 - tap.high;
    }
    for (int c = 0; c < channels; ++c) {
      taps_.low[x * channels + c] = tap.low * channels + c;
      taps_.high[x * channels + c] = tap.high * channels + c;
      taps_.weight[x * channels + c] = tap.weight;
    }
  }
  MakeBlocks(int64_t{1} * resize.in_size * channels);
}

void RowResizer::MakeBlocks(int64_t row_elements) {
  constexpr int64_t kBlockBytes = 16;
  taps_.in_blocks = row_elements >= kBlockBytes;
  taps_.block_begin.clear();
  taps_.low_shuffle.clear();
  taps_.high_shuffle.clear();
  const int64_t used = int64_t{1} * resize_.out_size * resize_.channels;
  for (int64_t first = 0; first < taps_.size && taps_.in_blocks; first += 4) {
    // The elements after the row take the bytes of its last element.
    const auto tap = [&](const std::vector<int32_t>& taps, int64_t i) {
      return taps[std::min(first + i, used - 1)];
    };
    int32_t begin = tap(taps_.low, 0);
    for (int i = 0; i < 4; ++i) {
      begin = std::min({begin, tap(taps_.low, i), tap(taps_.high, i)});
    }
    begin = std::min<int32_t>(begin, static_cast<int32_t>(row_elements - kBlockBytes));
    taps_.block_begin.push_back(begin);
    for (int i = 0; i < 4; ++i) {
      const int32_t low = tap(taps_.low, i) - begin;
      const int32_t high = tap(taps_.high, i) - begin;
      taps_.in_blocks = taps_.in_blocks && low < kBlockBytes && high < kBlockBytes;
      for (const auto& [shuffle, byte] :
           {std::pair(&taps_.low_shuffle, low), std::pair(&taps_.high_shuffle, high)}) {
        shuffle->push_back(static_cast<uint8_t>(byte));
        shuffle->insert(shuffle->end(), 3, RowTaps::kNothing);
      }
    }
  }
}

void RowResizer::Resize(const uint8_t* row, float* out) {
  if (taps_.in_blocks) {
    PUSHPULL_FOR_CHOSEN_ISA(ResizeBlocks)(taps_, row, out);
    return;
  }
  row_.assign(row, row + int64_t{1} * resize_.in_size * resize_.channels);
  Resize(row_.data(), out);
}

void RowResizer::Resize(const float* row, float* out) const {
  PUSHPULL_FOR_CHOSEN_ISA(ResizeFloats)(taps_, row, out);
}

void BlendAndNormalize(int64_t size, const float* top, const float* bottom, float weight,
                       float* out) {
  PUSHPULL_FOR_CHOSEN_ISA(Blend)(size, top, bottom, weight, out);
}

}  // namespace pushpull
#endif  // HWY_ONCE
