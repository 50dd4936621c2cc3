// Bilinear resizing of the rows of an image with vectors, bit for bit as Between and
// NormalizedPixel (kernels/image_math.h) of each element.
// Tested by tests/kernels/cpu/image_rows_test.cc.
#ifndef PUSHPULL_KERNELS_CPU_IMAGE_ROWS_H_
#define PUSHPULL_KERNELS_CPU_IMAGE_ROWS_H_

#include <cstdint>
#include <vector>

namespace pushpull {

// The floats of a row in memory are a multiple of this many, so that every vector is whole.
inline constexpr int64_t kRowAlignment = 16;
// Rounds up to a multiple of kRowAlignment.
int64_t PaddedRow(int64_t elements);

// Describes how a row of pixels becomes a resized row.
struct RowResize {
  int in_size = 0;        // pixels
  int out_size = 0;       // pixels
  int channels = 0;       // 1 or 3, of both rows
  bool mirrored = false;  // the first pixel in memory is the last one of the row
  bool operator==(const RowResize&) const = default;
};

// For each element of a resized row, the two elements of the source that it lies between: it is
// low + (high - low) * weight. Elements that fill the last vector are 0.
struct RowTaps {
  int64_t size = 0;           // of the arrays: PaddedRow(out_size * channels)
  std::vector<int32_t> low;   // an index into the source's row
  std::vector<int32_t> high;  // an index into the source's row
  std::vector<float> weight;  // in [0, 1)
  // Four elements of the resized row usually come from 16 bytes, counted from block_begin. The
  // shuffles say which of these bytes each element needs, four bytes for each, of which three are
  // kNothing.
  static constexpr uint8_t kNothing = 0x80;
  // Whether this holds for all of them. Otherwise nothing reads the arrays below, which then may be
  // shorter.
  bool in_blocks = false;
  std::vector<int32_t> block_begin;   // [size / 4]
  std::vector<uint8_t> low_shuffle;   // [size * 4]
  std::vector<uint8_t> high_shuffle;  // [size * 4]
};

// Resizes rows along x. Not thread-safe.
class RowResizer {
 public:
  // Prepares for rows of this kind; cheap if the last ones were of the same kind.
  void Begin(const RowResize& resize);
  // Writes PaddedRow(out_size * channels) floats to `out`: the resized row, then zeros or repeated
  // elements. The row is [in_size, channels].
  void Resize(const uint8_t* row, float* out);
  void Resize(const float* row, float* out) const;

 private:
  void MakeBlocks(int64_t row_elements);

  RowResize resize_;
  RowTaps taps_;
  std::vector<float> row_;  // bytes as floats, if they are not taken in blocks
};

// out[i] = NormalizedPixel(Between(top[i], bottom[i], weight)) for i < size. `top` and `bottom`
// hold PaddedRow(size) floats; of `out`, `size` floats are written.
void BlendAndNormalize(int64_t size, const float* top, const float* bottom, float weight,
                       float* out);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_IMAGE_ROWS_H_
