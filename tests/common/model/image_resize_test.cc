#include "common/model/image_resize.h"

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

// The expected sizes are those that TensorFlow's resize_to_range returns for the same arguments.
TEST(ImageResizeTest, KeepsTheAspectRatioWithinBothLimits) {
  const AspectRatioResize resize = {50, 100, {}};
  EXPECT_EQ(ScaledSize(resize, {60, 40}), (ImageSize{75, 50}));   // limited by the shorter side
  EXPECT_EQ(ScaledSize(resize, {15, 30}), (ImageSize{50, 100}));  // both limits at once
  EXPECT_EQ(ScaledSize(resize, {15, 50}), (ImageSize{30, 100}));  // limited by the longer side
  EXPECT_EQ(ScaledSize(resize, {200, 400}), (ImageSize{50, 100}));
  EXPECT_EQ(ScaledSize(resize, {1, 1}), (ImageSize{50, 50}));
  EXPECT_EQ(ScaledSize(resize, {20000, 1}), (ImageSize{100, 1}));    // at least one pixel
  EXPECT_EQ(ScaledSize({5, 100, {}}, {10, 13}), (ImageSize{5, 6}));  // 6.5 rounds to even
}

TEST(ImageResizeTest, ReadsBothResizers) {
  config::ImageResizer resizer;
  resizer.mutable_fixed_shape_resizer()->set_height(96);
  EXPECT_EQ(ResizedSize(resizer), (ImageSize{96, 300}));
  EXPECT_EQ(ResolveAspectRatioResize(resizer), std::nullopt);
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "keep_aspect_ratio_resizer { min_dimension: 64 max_dimension: 128 pad_to_max_dimension: true"
      "  per_channel_pad_value: 1 per_channel_pad_value: 2 per_channel_pad_value: 3 }",
      &resizer));
  EXPECT_EQ(ResizedSize(resizer), (ImageSize{128, 128}));
  EXPECT_EQ(ResolveAspectRatioResize(resizer), (AspectRatioResize{64, 128, {1.0f, 2.0f, 3.0f}}));
}

}  // namespace
}  // namespace pushpull
