#include "worker/data/preprocessor.h"

#include <cmath>

#include "gtest/gtest.h"

#include "tests/testkit/data/data_test_util.h"
#include "worker/data/augment/editable_image.h"

namespace pushpull {
namespace {

std::vector<float> Preprocess(const Image& image, const InputShape& shape,
                              const Shift& shift = {}) {
  Preprocessor preprocessor(shape);
  std::vector<float> out(shape.num_elements(), NAN);
  preprocessor.Run(ViewPixels(image), shift, out.data());
  return out;
}

float Normalize(float value) { return value * (2.0f / 255.0f) - 1.0f; }

// Returns channel c of a pixel after the conversion of channels, in 0..255.
double Pixel(const Image& image, int y, int x, int c, int channels) {
  const uint8_t* const p =
      image.pixels.data() + (int64_t{1} * y * image.width + x) * image.channels;
  if (image.channels == channels) return p[c];
  return image.channels == 1 ? p[0] : 0.2989 * p[0] + 0.5870 * p[1] + 0.1140 * p[2];
}

// The formula of the header, evaluated literally in double.
double Reference(const Image& image, const InputShape& shape, int y, int x, int c) {
  const double source_y = static_cast<double>(y) * image.height / shape.height;
  const double source_x = static_cast<double>(x) * image.width / shape.width;
  const int y0 = static_cast<int>(std::floor(source_y + 1e-6));
  const int x0 = static_cast<int>(std::floor(source_x + 1e-6));
  const int y1 = std::min(y0 + 1, image.height - 1);
  const int x1 = std::min(x0 + 1, image.width - 1);
  const double wy = source_y - y0;
  const double wx = source_x - x0;
  const auto at = [&](int v, int u) { return Pixel(image, v, u, c, shape.channels); };
  const double top = at(y0, x0) * (1 - wx) + at(y0, x1) * wx;
  const double bottom = at(y1, x0) * (1 - wx) + at(y1, x1) * wx;
  return (top * (1 - wy) + bottom * wy) * 2 / 255 - 1;
}

TEST(PreprocessorTest, EqualSizesOnlyNormalise) {
  Image image{1, 4, 1, {0, 1, 128, 255}};
  EXPECT_EQ(Preprocess(image, {1, 4, 1}),
            (std::vector<float>{-1.0f, Normalize(1), Normalize(128), 1.0f}));
}

// Expected values computed by hand. 2 x 2 to 4 x 4 has the scale 1/2 and the source rows 0, 0.5, 1
// and 1.5, of which the last is clamped to row 1.
TEST(PreprocessorTest, EnlargesBilinearly) {
  const Image image{2, 2, 1, {0, 100, 200, 50}};
  const std::vector<float> expected = {0,   50,   100, 100,  //
                                       100, 87.5, 75,  75,   //
                                       200, 125,  50,  50,   //
                                       200, 125,  50,  50};
  const std::vector<float> out = Preprocess(image, {4, 4, 1});
  for (int i = 0; i < 16; ++i) EXPECT_FLOAT_EQ(out[i], Normalize(expected[i])) << i;
}

// Expected values computed by hand. 5 to 2 has the scale 2.5 and the source rows 0 and 2.5; the
// pixels between are not averaged.
TEST(PreprocessorTest, ReducesBilinearly) {
  const Image image{1, 5, 1, {10, 20, 30, 50, 90}};
  const std::vector<float> out = Preprocess(image, {1, 2, 1});
  EXPECT_FLOAT_EQ(out[0], Normalize(10));
  EXPECT_FLOAT_EQ(out[1], Normalize(40));
}

TEST(PreprocessorTest, AgreesWithTheFormulaForAllConversionsAndSizes) {
  const std::vector<std::pair<int, int>> sizes = {{28, 28}, {32, 32}, {17, 45},
                                                  {64, 40}, {1, 1},   {100, 7}};
  for (const int in_channels : {1, 3}) {
    for (const int out_channels : {1, 3}) {
      for (const auto& [height, width] : sizes) {
        const Image image = MakeImage(height, width, in_channels);
        const InputShape shape = {32, 32, out_channels};
        const std::vector<float> out = Preprocess(image, shape);
        for (int i = 0; i < shape.num_elements(); ++i) {
          const int c = i % out_channels;
          const int x = i / out_channels % 32;
          const int y = i / out_channels / 32;
          ASSERT_NEAR(out[i], Reference(image, shape, y, x, c), 2e-5)
              << height << "x" << width << "x" << in_channels << " to " << out_channels << " at "
              << y << "," << x << "," << c;
        }
      }
    }
  }
}

TEST(PreprocessorTest, KeepsNothingOfThePreviousImage) {
  Preprocessor preprocessor({8, 8, 3});
  std::vector<float> out(8 * 8 * 3);
  for (const auto& [height, width, channels] :
       std::vector<std::array<int, 3>>{{4, 4, 3}, {4, 4, 1}, {8, 8, 3}, {9, 5, 1}, {4, 4, 3}}) {
    Image image = MakeImage(height, width, channels);
    for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(pixel + 13 * height);
    preprocessor.Run(ViewPixels(image), {}, out.data());
    EXPECT_EQ(out, Preprocess(image, {8, 8, 3}));
  }
}

TEST(PreprocessorTest, ShiftMovesTheNormalisedPixels) {
  for (const int channels : {1, 3}) {
    for (const int in_size : {6, 5}) {  // without and with resizing
      const Image image = MakeImage(in_size, in_size, channels);
      const InputShape shape = {6, 6, channels};
      const std::vector<float> plain = Preprocess(image, shape);
      for (const Shift& shift :
           {Shift{2, -1}, Shift{-3, 2}, Shift{0, 6}, Shift{-9, 0}, Shift{1, -8}}) {
        const std::vector<float> out = Preprocess(image, shape, shift);
        for (int i = 0; i < shape.num_elements(); ++i) {
          const int c = i % channels;
          const int y = i / channels / 6 - shift.y;
          const int x = i / channels % 6 - shift.x;
          const bool inside = y >= 0 && y < 6 && x >= 0 && x < 6;
          const float expected = inside ? plain[(y * 6 + x) * channels + c] : 0.0f;
          ASSERT_EQ(out[i], expected) << i << " shift " << shift.y << "," << shift.x;
        }
      }
    }
  }
}

TEST(PreprocessorTest, FloatsGiveTheSameAsBytes) {
  for (const int channels : {1, 3}) {
    for (const int in_size : {6, 5}) {
      const Image image = MakeImage(in_size, in_size, channels);
      const std::vector<float> floats(image.pixels.begin(), image.pixels.end());
      for (const int out_channels : {1, 3}) {
        const InputShape shape = {6, 6, out_channels};
        std::vector<float> out(shape.num_elements(), NAN);
        Preprocessor(shape).Run({in_size, in_size, channels, nullptr, floats.data()}, {},
                                out.data());
        const std::vector<float> expected = Preprocess(image, shape);
        for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected[i], 1e-6) << i;
      }
    }
  }
}

// A map leads to pixels that were not moved; the result has the same bits as if they had been.
TEST(PreprocessorTest, ReadsEditedImagesInPlace) {
  for (const int channels : {1, 3}) {
    for (const int out_channels : {1, 3}) {
      for (int edits = 0; edits < 32; ++edits) {
        SCOPED_TRACE(testing::Message()
                     << channels << " to " << out_channels << ", edits " << edits);
        Image image = MakeImage(31, 43, channels);
        EditableImage edited;
        edited.Take(&image);
        if ((edits & 1) != 0) edited.Crop({2, 5, 20, 30});
        if ((edits & 2) != 0) edited.MirrorColumns();
        if ((edits & 4) != 0) edited.MirrorRows();
        if ((edits & 8) != 0) edited.RotateCounterClockwise();
        if ((edits & 16) != 0) {
          edited.Floats();
          edited.MirrorColumns();
          edited.Crop({1, 1, 17, 18});
        }
        const InputShape shape = {16, 13, out_channels};
        std::vector<float> in_place(shape.num_elements(), NAN), moved(shape.num_elements(), NAN);
        Preprocessor preprocessor(shape);
        const PixelView stored = edited.ViewWithoutPadding();
        preprocessor.Run(stored, edited.map(), {}, in_place.data());
        preprocessor.Run(edited.View(), {}, moved.data());
        EXPECT_EQ(in_place, moved);
      }
    }
  }
}

// The image must equal one that a fixed-shape resizer of the scaled size makes, placed in a corner
// of the padding.
TEST(PreprocessorTest, KeepsTheAspectRatio) {
  for (const int channels : {1, 3}) {
    InputShape shape = {20, 20, channels, AspectRatioResize{12, 20, {10.0f, 20.0f, 30.0f}}};
    Preprocessor preprocessor(shape);  // handles images of different shapes in turn
    for (const auto& [height, width] : std::vector<std::pair<int, int>>{
             {24, 24}, {24, 30}, {30, 24}, {10, 40}, {40, 10}, {12, 20}, {24, 24}}) {
      const Image image = MakeImage(height, width, 3);
      const ImageSize content = ScaledSize(*shape.keep_aspect_ratio, {height, width});
      const std::vector<float> expected =
          Preprocess(image, {content.height, content.width, channels});
      std::vector<float> out(shape.num_elements(), NAN);
      preprocessor.Run(ViewPixels(image), {}, out.data());
      for (int y = 0; y < 20; ++y) {
        for (int i = 0; i < 20 * channels; ++i) {
          const bool inside = y < content.height && i < content.width * channels;
          ASSERT_EQ(out[y * 20 * channels + i],
                    inside ? expected[y * content.width * channels + i]
                           : Normalize(10.0f * static_cast<float>(i % channels + 1)))
              << height << "x" << width << " at " << y << ", " << i;
        }
      }
      const InputWindow window = WindowOf(shape, {height, width});
      EXPECT_FLOAT_EQ(window.height, static_cast<float>(content.height) / 20.0f);
      EXPECT_FLOAT_EQ(window.width, static_cast<float>(content.width) / 20.0f);
    }
  }
}

TEST(PreprocessorTest, ShiftMovesThePaddingToo) {
  const InputShape shape = {4, 4, 1, AspectRatioResize{2, 4, {}}};
  const Image image{2, 4, 1, {0, 100, 200, 50, 10, 20, 30, 40}};
  const std::vector<float> out = Preprocess(image, shape, {1, -1});
  const std::vector<float> expected = {0,   0,   0,  0,  //
                                       100, 200, 50, 0,  //
                                       20,  30,  40, 0,  //
                                       0,   0,   0,  0};
  for (int i = 0; i < 16; ++i) {
    const bool moved_in = i < 4 || i % 4 == 3;  // the shift moves middle grey in
    EXPECT_FLOAT_EQ(out[i], moved_in ? 0.0f : Normalize(expected[i])) << i;
  }
}

}  // namespace
}  // namespace pushpull
