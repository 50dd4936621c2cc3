// Compares edits that only change the mapping to the pixels with the same edits applied to the
// pixels at once.
#include "worker/data/augment/editable_image.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/random.h"
#include "tests/testkit/data/data_test_util.h"
#include "worker/data/image_codec.h"

namespace pushpull {
namespace {

// The reference: every edit moves all pixels.
struct MovedImage {
  int height = 0, width = 0, channels = 0;
  std::vector<float> values;

  float at(int y, int x, int c) const {
    return values[(int64_t{1} * y * width + x) * channels + c];
  }

  template <typename ValueAt>
  void Redraw(int new_height, int new_width, const ValueAt& value_at) {
    std::vector<float> redrawn;
    for (int y = 0; y < new_height; ++y) {
      for (int x = 0; x < new_width; ++x) {
        for (int c = 0; c < channels; ++c) redrawn.push_back(value_at(y, x, c));
      }
    }
    height = new_height;
    width = new_width;
    values = redrawn;
  }
};

class TwoImages {
 public:
  TwoImages(int height, int width, int channels) {
    Image image = MakeImage(height, width, channels);
    moved_ = {height, width, channels, {image.pixels.begin(), image.pixels.end()}};
    image_.Take(&image);
  }

  // Applies a random edit to both images and returns its name.
  std::string Edit(CounterRandom* random) {
    const MovedImage old = moved_;
    const int h = old.height, w = old.width;
    const auto below = [random](int end) { return static_cast<int>(random->NextBelow(end)); };
    switch (below(6)) {
      case 0:
        image_.MirrorColumns();
        moved_.Redraw(h, w, [&](int y, int x, int c) { return old.at(y, w - 1 - x, c); });
        return "columns ";
      case 1:
        image_.MirrorRows();
        moved_.Redraw(h, w, [&](int y, int x, int c) { return old.at(h - 1 - y, x, c); });
        return "rows ";
      case 2:
        image_.RotateCounterClockwise();
        moved_.Redraw(w, h, [&](int y, int x, int c) { return old.at(x, w - 1 - y, c); });
        return "rotation ";
      case 3: {
        PixelWindow window;
        window.height = 1 + below(h);
        window.width = 1 + below(w);
        window.y = below(h - window.height + 1);
        window.x = below(w - window.width + 1);
        image_.Crop(window);
        moved_.Redraw(window.height, window.width,
                      [&](int y, int x, int c) { return old.at(window.y + y, window.x + x, c); });
        return "crop ";
      }
      case 4: {
        const int top = below(3), left = below(4);
        const int new_height = top + h + below(3), new_width = left + w + below(2);
        // Byte pixels drop the half.
        const std::array<float, 3> colour = {10.5f, 20.0f, 30.0f};
        image_.Pad(new_height, new_width, top, left, colour);
        moved_.channels = 3;
        moved_.Redraw(new_height, new_width, [&](int y, int x, int c) {
          const bool is_inside = y >= top && y < top + h && x >= left && x < left + w;
          if (is_inside) return old.at(y - top, x - left, std::min(c, old.channels - 1));
          return c == 0 && !is_float_ ? 10.0f : colour[c];
        });
        return "pad ";
      }
      default:
        if (below(3) > 0) return "";
        is_float_ = true;
        for (float& value : image_.Floats()) value += 0.25f;
        for (float& value : moved_.values) value += 0.25f;
        return "colours ";
    }
  }

  void ExpectSame() {
    ASSERT_EQ(image_.height(), moved_.height);
    ASSERT_EQ(image_.width(), moved_.width);
    ExpectMeanOfAll();
    const PixelView view = image_.View();
    ASSERT_EQ(view.height, moved_.height);
    ASSERT_EQ(view.width, moved_.width);
    ASSERT_EQ(view.channels, moved_.channels);
    ASSERT_EQ(view.bytes == nullptr, is_float_);
    std::vector<float> got;
    for (size_t i = 0; i < moved_.values.size(); ++i) {
      got.push_back(is_float_ ? view.floats[i] : static_cast<float>(view.bytes[i]));
    }
    EXPECT_EQ(got, moved_.values);
  }

 private:
  void ExpectMeanOfAll() {
    EditableImage copy = image_;
    const std::array<float, 3> mean = copy.MeanColour();
    for (int c = 0; c < 3; ++c) {
      double sum = 0;
      for (size_t i = std::min(c, moved_.channels - 1); i < moved_.values.size();
           i += moved_.channels)
        sum += moved_.values[i];
      EXPECT_NEAR(mean[c], sum / (moved_.height * moved_.width), 1e-3);
    }
  }

  EditableImage image_;
  MovedImage moved_;
  bool is_float_ = false;
};

TEST(EditableImageTest, ChainsOfEditsGiveTheSamePixels) {
  CounterRandom random(17, 1);
  for (int round = 0; round < 600; ++round) {
    const int channels = round % 2 == 0 ? 3 : 1;
    TwoImages images(1 + static_cast<int>(random.NextBelow(9)),
                     1 + static_cast<int>(random.NextBelow(9)), channels);
    std::string edits;
    const int count = static_cast<int>(random.NextBelow(8));
    for (int i = 0; i < count; ++i) edits += images.Edit(&random);
    SCOPED_TRACE(edits);
    images.ExpectSame();
    edits += images.Edit(&random);  // edits continue after the pixels have been moved
    images.ExpectSame();
    if (testing::Test::HasFailure()) break;
  }
}

TEST(EditableImageTest, AGreyImageGetsColourChannelsForAColouredPadding) {
  const auto grey = [](bool jpeg) {
    Image image = MakeImage(16, 16, 1);
    std::fill(image.pixels.begin(), image.pixels.end(), 77);
    if (jpeg) {
      EXPECT_TRUE(DecodeAllButJpeg(EncodeJpeg(image), "grey", &image).ok());
    }
    return image;
  };
  for (const bool jpeg : {false, true}) {
    EditableImage edited;
    Image image = grey(jpeg);
    edited.Take(&image);
    edited.Crop({4, 5, 3, 2});
    edited.Pad(3, 3, 0, 1, {50.0f, 50.0f, 50.0f});
    EXPECT_EQ(edited.channels(), 1) << "a grey padding needs no colour";
    edited.Pad(4, 3, 0, 0, {1.0f, 2.0f, 3.0f});
    const PixelView view = edited.View();
    ASSERT_EQ(view.channels, 3);
    const std::vector<uint8_t> first_row = {50, 50, 50, 77, 77, 77, 77, 77, 77};
    EXPECT_EQ(std::vector<uint8_t>(view.bytes, view.bytes + 9), first_row);
    const std::vector<uint8_t> last_row = {1, 2, 3, 1, 2, 3, 1, 2, 3};
    EXPECT_EQ(std::vector<uint8_t>(view.bytes + 27, view.bytes + 36), last_row);
  }
}

TEST(EditableImageTest, GeometricEditsDoNotMovePixels) {
  Image image = MakeImage(6, 5, 3);
  const uint8_t* const pixels = image.pixels.data();
  EditableImage edited;
  edited.Take(&image);
  edited.Crop({1, 2, 4, 3});
  edited.MirrorColumns();
  edited.RotateCounterClockwise();
  edited.Pad(9, 9, 1, 2, {});
  EXPECT_EQ(edited.Stored().bytes, pixels);
  EXPECT_EQ(edited.Stored().height, 6);
  EXPECT_EQ(edited.height(), 9);
}

}  // namespace
}  // namespace pushpull
