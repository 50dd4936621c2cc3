#include "kernels/cpu/image_rows.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/cpu_isa.h"
#include "kernels/image_math.h"

namespace pushpull {
namespace {

std::vector<uint8_t> Bytes(int64_t size) {
  std::vector<uint8_t> bytes(size);
  uint32_t state = 7;
  for (uint8_t& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

// The resized row by the formulas, one element after the other.
std::vector<float> Expected(const RowResize& resize, const std::vector<uint8_t>& row) {
  std::vector<float> out;
  for (int x = 0; x < resize.out_size; ++x) {
    const ResizeTap tap = ResizeTapOf(x, resize.in_size, resize.out_size);
    for (int c = 0; c < resize.channels; ++c) {
      const auto at = [&](int i) {
        const int in_memory = resize.mirrored ? resize.in_size - 1 - i : i;
        return static_cast<float>(row[in_memory * resize.channels + c]);
      };
      out.push_back(Between(at(tap.low), at(tap.high), tap.weight));
    }
  }
  return out;
}

class ImageRowsTest : public testing::Test {
 protected:
  ~ImageRowsTest() override { UseCpuIsa(AvailableCpuIsas().back()); }
};

// The vectors hold exactly as many elements as the contract says, so that a sanitizer finds any
// access outside of them.
TEST_F(ImageRowsTest, RowsHaveTheBitsOfTheFormulas) {
  for (const CpuIsa isa : AvailableCpuIsas()) {
    UseCpuIsa(isa);
    RowResizer resizer;
    for (const int channels : {1, 3}) {
      for (const int in_size : {1, 2, 5, 6, 15, 16, 17, 64, 333}) {
        for (const int out_size : {1, 2, 5, 16, 17, 63, 64, 100, 333}) {
          for (const bool mirrored : {false, true}) {
            const RowResize resize{in_size, out_size, channels, mirrored};
            SCOPED_TRACE(testing::Message()
                         << CpuIsaName(isa) << " " << in_size << " to " << out_size << " pixels of "
                         << channels << " channels, mirrored " << mirrored);
            const std::vector<uint8_t> row = Bytes(in_size * channels);
            const std::vector<float> expected = Expected(resize, row);
            const int64_t size = int64_t{1} * out_size * channels;
            std::vector<float> out(PaddedRow(size));
            resizer.Begin(resize);
            resizer.Resize(row.data(), out.data());
            ASSERT_EQ(std::vector<float>(out.begin(), out.begin() + size), expected);
            const std::vector<float> floats(row.begin(), row.end());
            resizer.Resize(floats.data(), out.data());
            ASSERT_EQ(std::vector<float>(out.begin(), out.begin() + size), expected);
          }
        }
      }
    }
  }
}

TEST_F(ImageRowsTest, BlendsHaveTheBitsOfTheFormulas) {
  for (const CpuIsa isa : AvailableCpuIsas()) {
    UseCpuIsa(isa);
    for (const int64_t size : {1, 7, 8, 9, 15, 16, 17, 900}) {
      const std::vector<uint8_t> top = Bytes(PaddedRow(size)), bottom = Bytes(PaddedRow(size) + 3);
      const std::vector<float> a(top.begin(), top.end()), b(bottom.begin() + 3, bottom.end());
      std::vector<float> out(size);
      BlendAndNormalize(size, a.data(), b.data(), 0.3f, out.data());
      for (int64_t i = 0; i < size; ++i) {
        ASSERT_EQ(out[i], NormalizedPixel(Between(a[i], b[i], 0.3f)))
            << CpuIsaName(isa) << " " << i << " of " << size;
      }
    }
  }
}

// What follows `out` is the next image of a batch, which another thread may be writing.
TEST_F(ImageRowsTest, BlendsTouchNothingBehindTheRows) {
  for (const CpuIsa isa : AvailableCpuIsas()) {
    UseCpuIsa(isa);
    for (int64_t size = 1; size <= 33; ++size) {
      SCOPED_TRACE(testing::Message() << CpuIsaName(isa) << ", " << size << " floats");
      BeforeAPage<float> top(std::vector<float>(PaddedRow(size), 100.0f));
      BeforeAPage<float> bottom(std::vector<float>(PaddedRow(size), 200.0f));
      BeforeAPage<float> out(std::vector<float>(size, 0.0f));
      BlendAndNormalize(size, top.data(), bottom.data(), 0.25f, out.data());
      EXPECT_EQ(std::vector<float>(out.data(), out.data() + size),
                std::vector<float>(size, NormalizedPixel(Between(100.0f, 200.0f, 0.25f))));
    }
  }
}

}  // namespace
}  // namespace pushpull
