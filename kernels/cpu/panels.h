// The layout of packed operands of a matrix product. The channels of a block of rows are cut into
// panels of 8, 16, 24 or 32 channels, and each panel is a dense [rows, width].
// The width is that of one register tile of the product, so a tile reads contiguous memory. Plain
// values.
//
//   a block of 4 rows with 37 channels: panels of 16 and 24, 40 floats per row
//
//   row 0  | 0 .. 15 | 16 .. 36 0 0 0 |        in memory:
//   row 1  |         |                |        panel 0: [4, 16], then
//   row 2  |         |                |        panel 1: [4, 24], from float 4 * 16 on
//   row 3  |         |                |
#ifndef PUSHPULL_KERNELS_CPU_PANELS_H_
#define PUSHPULL_KERNELS_CPU_PANELS_H_

#include <cstdint>

namespace pushpull {

// The floats of a packed row, and the widths of panels, are multiples of this number, whatever the
// length of the vectors that the CPU has.
inline constexpr int kPanelAlignment = 8;
constexpr int64_t PadToPanel(int64_t channels) {
  return (channels + kPanelAlignment - 1) / kPanelAlignment * kPanelAlignment;
}
inline constexpr int kMaxPanelWidth = 32;

struct Panel {
  int64_t start;  // first channel
  int width;      // multiple of 8
  int valid;      // channels that exist, more than width - 8; the rest are zeros
};

// Panels begin to end - 1 of some Panels.
struct PanelRange {
  int64_t begin;
  int64_t end;
};

// The panels of a number of channels. All have a width of 16, except that a remainder of up to 8
// channels widens the last panel to 24, since a register tile of width 8 cannot fill the pipeline
// (gemm.cc). Only up to 8 channels in total make a panel of 8. With `merge_pairs`, two neighbouring
// panels of 16 become one of 32, from the first channel on.
class Panels {
 public:
  explicit Panels(int64_t channels, bool merge_pairs = false)
      : channels_(channels), padded_(PadToPanel(channels)) {
    const int64_t unmerged = padded_ == kPanelAlignment ? 1 : padded_ / 16;
    const bool last_is_24 = padded_ % 16 != 0 && padded_ != kPanelAlignment;
    merged_ = merge_pairs ? (last_is_24 ? unmerged - 1 : padded_ / 16) / 2 : 0;
    count_ = unmerged - merged_;
  }

  int64_t channels() const { return channels_; }
  // The floats per row, which is the sum of the widths. In a block of `rows` rows a panel begins at
  // float rows * start.
  int64_t padded() const { return padded_; }
  int64_t count() const { return count_; }
  PanelRange all() const { return {0, count_}; }
  // Returns the number of the panel that has this channel, which may be one of the padding.
  int64_t IndexOf(int64_t channel) const {
    const int64_t index =
        channel < 32 * merged_ ? channel / 32 : merged_ + (channel - 32 * merged_) / 16;
    return index < count_ ? index : count_ - 1;
  }
  // Returns a number of neighbouring panels that have at most `channels` (32 or more) channels, or
  // 8 more if the last one is 24 wide.
  int64_t PanelsOf(int64_t channels) const { return channels / (merged_ > 0 ? 32 : 16); }
  Panel operator[](int64_t i) const {
    const int64_t start = i * 16 + 16 * (i < merged_ ? i : merged_);
    const int64_t end = i + 1 == count_ ? padded_ : start + (i < merged_ ? 32 : 16);
    const int64_t valid = (end < channels_ ? end : channels_) - start;
    return {start, static_cast<int>(end - start), static_cast<int>(valid)};
  }

 private:
  int64_t channels_;
  int64_t padded_;
  int64_t merged_;  // the panels of 32
  int64_t count_;
};

// The panels of right operands and results for the chosen instruction set. With AVX-512 most are 32
// wide, so that the left operand is read half as often. The gradient of an output is packed so too,
// because it is the right operand of the weight gradient.
Panels ResultPanels(int64_t channels);

// The panels of left operands that are packed as P (kernels/cpu/packed_numbers.h). Most are 32 wide
// where the product is made in tiles, which take 32 numbers of a row at a time.
template <typename P>
Panels InnerPanels(int64_t channels);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_PANELS_H_
