#include "worker/data/augmentation.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

AugmentationSpec Parse(const std::string& text) {
  config::TrainConfig train;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &train)) << text;
  return ParseAugmentation(train.data_augmentation_options());
}

constexpr char kFlip[] = "data_augmentation_options { random_horizontal_flip {} }";
constexpr char kShift[] = "data_augmentation_options { random_shift { max_pixels: 3 } }";

constexpr char kCrop[] = "data_augmentation_options { ssd_random_crop {} }";

TEST(AugmentationTest, ParsesStepsInOrder) {
  const AugmentationSpec none = Parse("");
  EXPECT_TRUE(none.steps.empty());
  EXPECT_EQ(none.max_shift_pixels, 0);
  const AugmentationSpec all = Parse(std::string(kFlip) + kCrop + kShift);
  EXPECT_EQ(all.steps.size(), 2u);
  EXPECT_EQ(all.max_shift_pixels, 3);
}

TEST(AugmentationTest, ShiftsAreUniformAndCoverTheRange) {
  AugmentationSpec spec;
  spec.max_shift_pixels = 2;
  std::map<int, int> y, x;
  constexpr int kDraws = 10000;
  for (int i = 0; i < kDraws; ++i) {
    const Shift shift = DrawShift(spec, 1, i);
    ++y[shift.y];
    ++x[shift.x];
  }
  EXPECT_EQ(y.size(), 5);
  EXPECT_EQ(x.size(), 5);
  for (int shift = -2; shift <= 2; ++shift) {
    EXPECT_NEAR(y[shift], kDraws / 5, 200);
    EXPECT_NEAR(x[shift], kDraws / 5, 200);
  }
}

TEST(AugmentationTest, DrawsDependOnlyOnSeedAndPosition) {
  AugmentationSpec spec;
  spec.max_shift_pixels = 100;
  const Shift a = DrawShift(spec, 1, 5);
  const Shift again = DrawShift(spec, 1, 5);
  EXPECT_EQ(a.y, again.y);
  EXPECT_EQ(a.x, again.x);
  const Shift seed = DrawShift(spec, 2, 5);
  const Shift position = DrawShift(spec, 1, 6);
  EXPECT_TRUE(a.y != seed.y || a.x != seed.x);
  EXPECT_TRUE(a.y != position.y || a.x != position.x);
}

// Augments an 8 x 8 image with one box. Returns the pixels and the box.
std::pair<std::vector<uint8_t>, Box> AugmentOne(const AugmentationSpec& spec, int64_t position) {
  Image image;
  image.height = image.width = 8;
  image.channels = 1;
  for (int i = 0; i < 64; ++i) image.pixels.push_back(static_cast<uint8_t>(i));
  std::vector<Box> boxes(1, {.ymin = 0.25f, .xmin = 0.5f, .ymax = 0.5f, .xmax = 1.0f});
  EditableImage edited;
  edited.Take(&image);
  Augment(spec, 7, position, &edited, &boxes);
  const PixelView view = edited.View();
  return {{view.bytes, view.bytes + edited.num_values()}, boxes.empty() ? Box() : boxes[0]};
}

TEST(AugmentationTest, EveryStepHasASeparateRandomStream) {
  const AugmentationSpec flip = Parse(kFlip);
  const AugmentationSpec flip_and_more =
      Parse(std::string(kFlip) + "data_augmentation_options { random_rgb_to_gray {} }");
  int flips = 0;
  for (int i = 0; i < 400; ++i) {
    const auto [pixels, box] = AugmentOne(flip, i);
    EXPECT_EQ(pixels, AugmentOne(flip_and_more, i).first);
    const bool flipped = pixels[0] == 7;
    EXPECT_FLOAT_EQ(box.xmin, flipped ? 0.0f : 0.5f);
    flips += flipped ? 1 : 0;
  }
  EXPECT_NEAR(flips, 200, 50);
}

}  // namespace
}  // namespace pushpull
