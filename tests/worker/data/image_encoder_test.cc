#include "worker/data/image_encoder.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "worker/data/image_codec.h"

namespace pushpull {
namespace {

Image Gradient(int height, int width, int channels) {
  Image image{height, width, channels, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        image.pixels.push_back(static_cast<uint8_t>(40 + y + 2 * x + 40 * c));
      }
    }
  }
  return image;
}

TEST(ImageEncoderTest, PngKeepsEveryPixel) {
  for (const Image& image : {Gradient(20, 30, 3), Gradient(17, 9, 1), Gradient(1, 1, 3)}) {
    std::string bytes = "left over";
    ASSERT_TRUE(EncodePng(image, &bytes).ok());
    Image decoded;
    ASSERT_TRUE(DecodePng(bytes, "test", &decoded).ok());
    EXPECT_EQ(decoded.height, image.height);
    EXPECT_EQ(decoded.width, image.width);
    EXPECT_EQ(decoded.channels, image.channels);
    EXPECT_EQ(decoded.pixels, image.pixels);
  }
}

TEST(ImageEncoderTest, JpegChangesPixelsLittle) {
  for (const Image& image : {Gradient(20, 30, 3), Gradient(17, 9, 1), Gradient(1, 1, 3)}) {
    std::string bytes = "left over";
    ASSERT_TRUE(EncodeJpeg(image, 95, &bytes).ok());
    Image decoded;
    ASSERT_TRUE(DecodeJpeg(bytes, "test", &decoded).ok());
    ASSERT_EQ(decoded.height, image.height);
    ASSERT_EQ(decoded.width, image.width);
    ASSERT_EQ(decoded.channels, image.channels);
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      ASSERT_LE(std::abs(decoded.pixels[i] - image.pixels[i]), 12) << "byte " << i;
    }
  }
}

TEST(ImageEncoderTest, LowerQualityGivesSmallerFiles) {
  std::string best, worst;
  ASSERT_TRUE(EncodeJpeg(Gradient(60, 60, 3), 100, &best).ok());
  ASSERT_TRUE(EncodeJpeg(Gradient(60, 60, 3), 1, &worst).ok());
  EXPECT_LT(worst.size(), best.size());
}

TEST(ImageEncoderTest, RefusesInvalidImages) {
  Image short_of_bytes = Gradient(4, 4, 3);
  short_of_bytes.pixels.pop_back();
  const Image bad[] = {Image{}, Image{4, 4, 2, std::vector<uint8_t>(32)}, short_of_bytes,
                       Image{-1, 4, 3, {}}, Image{1, kMaxImageSide + 1, 1, {}}};
  for (const Image& image : bad) {
    std::string bytes = "left over";
    EXPECT_EQ(EncodePng(image, &bytes).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(bytes, "");
    bytes = "left over";
    EXPECT_EQ(EncodeJpeg(image, 90, &bytes).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(bytes, "");
  }
  std::string bytes;
  EXPECT_THAT(std::string(EncodePng(short_of_bytes, &bytes).message()),
              testing::HasSubstr("from 47 bytes, 48 expected"));
}

TEST(ImageEncoderTest, RefusesQualityOutsideItsRange) {
  std::string bytes;
  for (int quality : {0, 101, -5}) {
    EXPECT_EQ(EncodeJpeg(Gradient(4, 4, 3), quality, &bytes).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace pushpull
