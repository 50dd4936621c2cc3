// Tested by tests/kernels/cpu/fast_convolution_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "kernels/cpu/weight_panels.h"

#include <algorithm>

#include "common/base/cpu_isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/weight_panels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "kernels/cpu/simd.h"
#include "kernels/cpu/transpose.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

// to[rows, panel.width] = the columns of the panel from from[rows, columns], then zeros.
void PackColumns(const float* from, int64_t rows, int64_t columns, const Panel& panel, float* to) {
  ForEachVector(0, panel.valid, [&](int64_t c, auto lanes) HWY_ATTR {
    const float* first = from + panel.start + c;
    for (int64_t k = 0; k < rows; ++k) {
      lanes.StorePadded(to + k * panel.width + c, lanes.Load(first + k * columns));
    }
  });
}

// Rounds `count` floats, which are in the cache.
void RoundInPlace(int64_t count, BfloatAsFloat* numbers) {
  ForEachVector(0, count, [&](int64_t i, auto lanes) HWY_ATTR {
    lanes.StorePadded(numbers + i, lanes.LoadPadded(FloatsOf(numbers + i)));
  });
}

// As PackColumns, with the rows in pairs: to[(rows + 1) / 2, panel.width] of 32 bits each.
void PackColumnPairs(const float* from, int64_t rows, int64_t columns, const Panel& panel,
                     Bfloat16* to) {
  float* pairs = reinterpret_cast<float*>(to);
  ForEachVector(0, panel.valid, [&](int64_t c, auto lanes) HWY_ATTR {
    const float* first = from + panel.start + c;
    for (int64_t k = 0; k < rows; k += 2) {
      const Vector second = k + 1 < rows ? lanes.Load(first + (k + 1) * columns) : Zero();
      const Vector pair = Pair(lanes.Load(first + k * columns), second);
      lanes.StorePadded(pairs + k / 2 * panel.width + c, pair);
    }
  });
}

// out[columns / 2] = the numbers of row[columns], rounded, a pair in each 32 bits. An odd last one
// is paired with zero.
void RoundToPairs(const float* row, int64_t columns, uint32_t* out) {
  int64_t c = 0;
  for (; c + kVectorLanes <= columns; c += kVectorLanes) {
    hn::StoreU(RoundedHalves(LoadWhole(row + c)), HalfBits(), reinterpret_cast<uint16_t*>(out) + c);
  }
  for (; c < columns; c += 2) {
    const uint32_t second = c + 1 < columns ? ToBfloat16(row[c + 1]).bits : 0;
    out[c / 2] = ToBfloat16(row[c]).bits | second << 16;
  }
}

void TransposePanel(const float* from, const Panel& panel, int64_t columns, float* to) {
  Transpose(reinterpret_cast<const uint32_t*>(from), columns, columns, panel.valid, panel.width,
            reinterpret_cast<uint32_t*>(to));
}

// Copies rows [k, k + count) of one column of the transposed matrix [taps * out, in] to `to`.
void CopyColumn(const WeightOperand& operand, int64_t column, int64_t k, int64_t count, float* to) {
  while (count > 0) {
    const int64_t tap = k / operand.out, o = k % operand.out;
    const int64_t part = std::min(count, operand.out - o);
    const float* from =
        operand.weights + (operand.Tap(tap) * operand.in + column) * operand.out + o;
    std::copy(from, from + part, to);
    to += part;
    k += part;
    count -= part;
  }
}

// Packs a panel of the transposed matrix with its rows in pairs. A pair of rows is a pair of
// neighbouring numbers of a column, so pairs are transposed like single numbers.
void TransposePanelPairs(const WeightOperand& operand, const Panel& panel, Bfloat16* to) {
  constexpr int64_t kPart = 128;  // the rows that are packed together
  float column[kPart];
  uint32_t pairs[kMaxPanelWidth * kPart / 2];
  const int64_t rows = operand.inner();
  for (int64_t k = 0; k < rows; k += kPart) {
    const int64_t count = std::min(kPart, rows - k);
    for (int i = 0; i < panel.valid; ++i) {
      CopyColumn(operand, panel.start + i, k, count, column);
      RoundToPairs(column, count, pairs + i * kPart / 2);
    }
    Transpose(pairs, kPart / 2, (count + 1) / 2, panel.valid, panel.width,
              reinterpret_cast<uint32_t*>(to) + k / 2 * panel.width);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

void WeightOperand::Pack(const Panel& panel, float* to) const {
  if (role == Role::kForward) {
    return PUSHPULL_FOR_CHOSEN_ISA(PackColumns)(weights, inner(), out, panel, to);
  }
  for (int64_t tap = 0; tap < taps; ++tap) {
    PUSHPULL_FOR_CHOSEN_ISA(TransposePanel)
    (weights + (Tap(tap) * in + panel.start) * out, panel, out, to + tap * out * panel.width);
  }
}

void WeightOperand::Pack(const Panel& panel, BfloatAsFloat* to) const {
  const int64_t numbers = inner() * panel.width;
  Pack(panel, FloatsOf(to));
  PUSHPULL_FOR_CHOSEN_ISA(RoundInPlace)(numbers, to);
  std::fill_n(to + numbers, EvenRows<BfloatAsFloat>(inner()) * panel.width - numbers,
              BfloatAsFloat());
}

void WeightOperand::Pack(const Panel& panel, Bfloat16* to) const {
  if (role == Role::kForward) {
    return PUSHPULL_FOR_CHOSEN_ISA(PackColumnPairs)(weights, inner(), out, panel, to);
  }
  PUSHPULL_FOR_CHOSEN_ISA(TransposePanelPairs)(*this, panel, to);
}

}  // namespace pushpull
#endif  // HWY_ONCE
