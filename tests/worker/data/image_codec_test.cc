#include "worker/data/image_codec.h"

#include <png.h>
#include <zlib.h>

#include <cstdlib>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/data/data_test_util.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void ExpectSame(const Image& a, const Image& b, int tolerance) {
  ASSERT_EQ(a.height, b.height);
  ASSERT_EQ(a.width, b.width);
  ASSERT_EQ(a.channels, b.channels);
  ASSERT_EQ(a.pixels.size(), b.pixels.size());
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    ASSERT_LE(std::abs(a.pixels[i] - b.pixels[i]), tolerance) << "pixel " << i;
  }
}

TEST(ImageCodecTest, PngGreyAndRgbAreExact) {
  for (const int channels : {1, 3}) {
    const Image image = MakeImage(9, 13, channels);
    Image decoded;
    ASSERT_TRUE(DecodeImage(EncodePng(image), "a.png", &decoded).ok());
    ExpectSame(image, decoded, 0);
  }
}

// Alpha is dropped, a palette resolved. Of 16 bits the high byte counts, whatever the gamma chunk
// says (libpng's writer calls these linear).
TEST(ImageCodecTest, PngOfOtherKinds) {
  const std::vector<uint8_t> rgba = {10, 20, 30, 255, 40, 50, 60, 128, 70, 80, 90, 0};
  const std::vector<uint8_t> rgb = {10, 20, 30, 40, 50, 60, 70, 80, 90};
  const std::vector<uint8_t> places = {2, 0, 1};
  const std::vector<uint16_t> deep = {0x0080, 0x12ff, 0xfe80};
  const struct {
    uint32_t format;
    const void* pixels;
    const void* palette;
    std::vector<uint8_t> expected;
  } cases[] = {
      {PNG_FORMAT_RGBA, rgba.data(), nullptr, rgb},
      {PNG_FORMAT_RGB_COLORMAP, places.data(), rgb.data(), {70, 80, 90, 10, 20, 30, 40, 50, 60}},
      {PNG_FORMAT_LINEAR_Y, deep.data(), nullptr, {0x00, 0x12, 0xfe}}};
  for (const auto& c : cases) {
    png_image png{};
    png.version = PNG_IMAGE_VERSION;
    png.height = 1;
    png.width = 3;
    png.format = c.format;
    png.colormap_entries = c.palette == nullptr ? 0 : 3;
    char bytes[1000];
    png_alloc_size_t size = sizeof(bytes);
    ASSERT_TRUE(png_image_write_to_memory(&png, bytes, &size, 0, c.pixels, 0, c.palette));
    Image decoded;
    ASSERT_TRUE(DecodeImage(absl::string_view(bytes, size), "kind.png", &decoded).ok());
    EXPECT_EQ(decoded.pixels, c.expected) << c.format;
    EXPECT_EQ(decoded.channels, static_cast<int>(c.expected.size()) / 3);
  }
}

TEST(ImageCodecTest, PgmIsExactAndScalesItsRange) {
  const Image image = MakeImage(5, 7, 1);
  Image decoded;
  ASSERT_TRUE(DecodeImage(EncodePgm(image), "a.pgm", &decoded).ok());
  ExpectSame(image, decoded, 0);
  ASSERT_TRUE(DecodeImage(absl::string_view("P5 3 1 2\n\x00\x01\x02", 12), "b.pgm", &decoded).ok());
  EXPECT_EQ(decoded.pixels, (std::vector<uint8_t>{0, 128, 255}));
}

TEST(ImageCodecTest, JpegGreyAndRgbAreClose) {
  for (const int channels : {1, 3}) {
    Image image = MakeImage(16, 16, channels);
    for (int y = 0; y < 16; ++y) {  // smooth, so that compression hardly changes it
      for (int i = 0; i < 16 * channels; ++i) image.pixels[y * 16 * channels + i] = 100 + 4 * y;
    }
    Image decoded;
    ASSERT_TRUE(DecodeImage(EncodeJpeg(image), "a.jpg", &decoded).ok());
    ExpectSame(image, decoded, 4);
  }
}

// Every truncated file must be an error that names the file. Decoding it must not crash or print.
TEST(ImageCodecTest, TruncatedAtEveryByteIsAnError) {
  const Image rgb = MakeImage(24, 24, 3);
  const std::vector<std::string> files = {EncodePng(rgb), EncodeJpeg(rgb),
                                          EncodePgm(MakeImage(6, 6, 1))};
  for (const std::string& file : files) {
    // A JPEG's last two bytes are its end marker; all pixels are complete without it.
    const size_t end = file.substr(0, 2) == "\xff\xd8" ? file.size() - 2 : file.size();
    for (size_t size = 0; size < end; ++size) {
      Image decoded;
      const absl::Status status = DecodeImage(file.substr(0, size), "cut.img", &decoded);
      ASSERT_FALSE(status.ok()) << size << " of " << file.size();
      ASSERT_THAT(std::string(status.message()), HasSubstr("cut.img"));
    }
  }
}

TEST(ImageCodecTest, FlippedBitsNeverCrashAndPngDetectsThem) {
  const std::string png = EncodePng(MakeImage(12, 12, 3));
  const std::string jpeg = EncodeJpeg(MakeImage(12, 12, 3));
  for (size_t bit = 0; bit < 8 * png.size(); ++bit) {
    std::string bad = png;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    Image decoded;
    const absl::Status status = DecodeImage(bad, "flip.png", &decoded);
    // Damage in chunks other than header, palette, data and end does not affect the pixels.
    if (status.ok()) ExpectSame(MakeImage(12, 12, 3), decoded, 0);
  }
  for (size_t bit = 0; bit < 8 * jpeg.size(); ++bit) {
    std::string bad = jpeg;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    Image decoded;
    DecodeImage(bad, "flip.jpg", &decoded).IgnoreError();
  }
}

TEST(ImageCodecTest, DamagedPngPixelsAreAnError) {
  std::string png = EncodePng(MakeImage(12, 12, 3));
  png[png.find("IDAT") + 20] ^= 1;
  Image image;
  const absl::Status status = DecodeImage(png, "bad.png", &image);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("bad.png: the PNG data are damaged"));
}

// Large published data sets have such files, COCO among them, and TensorFlow and PyTorch train on
// what libjpeg makes of them. So only a file that is cut off is an error, as it is there.
TEST(ImageCodecTest, DamagedJpegPixelsAreUsedAndNamed) {
  const std::string jpeg = EncodeJpeg(MakeImage(16, 16, 1));
  const size_t scan = jpeg.find("\xff\xda");
  ASSERT_NE(scan, std::string::npos);
  const size_t middle = (scan + 10 + jpeg.size()) / 2;  // 10: the bytes of a grey scan's header
  const auto with = [&jpeg](size_t place, size_t replaced, const std::string& bytes) {
    return std::string(jpeg).replace(place, replaced, bytes);
  };
  std::string no_code;  // a scan of one bits only, which is no valid code
  for (int i = 0; i < 10; ++i) no_code += std::string("\xff\0", 2);
  const std::pair<std::string, const char*> cases[] = {
      {with(middle, 0, "\xff\xd9"), "premature end of data segment"},
      {with(middle, no_code.size(), no_code), "bad Huffman code"},
      {with(scan, 0, std::string("\xff\xdd\0\4\0\1", 6)),
       "instead of RST"}};  // the file has no restart marker
  for (const auto& [file, reason] : cases) {
    Image image;
    const absl::Status status = DecodeImage(file, "bad.jpg", &image);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(image.pixels.size(), 16u * 16u);
    EXPECT_THAT(image.damage,
                AllOf(HasSubstr("bad.jpg: the JPEG data are damaged"), HasSubstr(reason)));
    for (const std::string& good : {jpeg, EncodePng(MakeImage(16, 16, 1))}) {
      ASSERT_TRUE(DecodeImage(good, "good", &image).ok());
      EXPECT_EQ(image.damage, "");
    }
  }
  Image image;
  const absl::Status status = DecodeImage(jpeg.substr(0, middle), "bad.jpg", &image);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("bad.jpg: the JPEG data are damaged"),
                                                   HasSubstr("Premature end of JPEG file")));
}

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

// Overwrites the width and height of a PNG file.
std::string ClaimPngSize(std::string file, uint32_t width, uint32_t height) {
  file.replace(16, 8, BigEndian(width) + BigEndian(height));
  const uint32_t crc = crc32(0, reinterpret_cast<const Bytef*>(&file[12]), 17);
  return file.replace(29, 4, BigEndian(crc));
}

// Overwrites the file's width and height with 20,000.
std::string Claim20000(std::string file) {
  if (file[0] == '\x89') return ClaimPngSize(std::move(file), 20000, 20000);
  const std::string claim("\x4e\x20", 2);
  size_t frame = file.find("\xff\xc0");  // the marker of a baseline frame
  if (frame == std::string::npos) return "";
  return file.replace(frame + 5, 4, claim + claim);
}

TEST(ImageCodecTest, RefusesHeadersThatClaim20000PixelsPerSide) {
  const Image small = MakeImage(8, 8, 3);
  std::string progressive = Claim20000(EncodeJpeg(small));
  progressive[progressive.find("\xff\xc0") + 1] = '\xc2';
  for (const std::string& file :
       {Claim20000(EncodePng(small)), Claim20000(EncodeJpeg(small)), progressive,
        Claim20000(EncodePng(MakeImage(8, 8, 1))), std::string("P5 20000 20000 255\n")}) {
    Image image;
    const absl::Status status = DecodeImage(file, "bomb.img", &image);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("bomb.img: the image says it is 20000 x"));
    EXPECT_EQ(image.pixels.capacity(), 0u);
  }
}

TEST(ImageCodecTest, RefusesAPngWithALongSideAsTooLarge) {
  const std::string png = EncodePng(MakeImage(1, 1, 1));
  for (const uint32_t side : {uint32_t{kMaxImageSide} + 1, uint32_t{0x7fffffff}}) {
    Image image;
    for (const bool wide : {false, true}) {
      const std::string claim = ClaimPngSize(png, wide ? side : 1, wide ? 1 : side);
      const absl::Status status = DecodeImage(claim, "long.png", &image);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("at most 32768 a side"));
    }
  }
}

TEST(ImageCodecTest, DecodesASinglePixel) {
  for (const int channels : {1, 3}) {
    const Image pixel{1, 1, channels, std::vector<uint8_t>(channels, 128)};
    std::vector<std::string> files = {EncodePng(pixel), EncodeJpeg(pixel)};
    if (channels == 1) files.push_back(EncodePgm(pixel));
    for (const std::string& file : files) {
      Image decoded;
      ASSERT_TRUE(DecodeImage(file, "1x1", &decoded).ok());
      ExpectSame(pixel, decoded, 1);
    }
  }
}

TEST(ImageCodecTest, NamesUnsupportedFormats) {
  Image image;
  const absl::Status text = DecodeImage("hello", "x.png", &image);
  EXPECT_EQ(text.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(text.message()), HasSubstr("x.png: not a PNG, JPEG or binary PGM"));
  EXPECT_EQ(DecodeImage("", "x.png", &image).code(), absl::StatusCode::kDataLoss);

  const absl::Status deep = DecodeImage("P5 2 2 65535\n12345678", "x.pgm", &image);
  EXPECT_THAT(std::string(deep.message()), HasSubstr("largest value 65535"));
  const absl::Status huge = DecodeImage("P5 100000 100000 255\n", "x.pgm", &image);
  EXPECT_THAT(std::string(huge.message()), HasSubstr("100000 x 100000"));
  const absl::Status wide = DecodeImage("P5 40000 1 255\n", "x.pgm", &image);
  EXPECT_THAT(std::string(wide.message()), HasSubstr("1 x 40000 (height x width); at most 32768"));
  const absl::Status above = DecodeImage("P5 2 1 100\n\x10\x7f", "x.pgm", &image);
  EXPECT_THAT(std::string(above.message()), HasSubstr("pixel 1 is 127"));
}

}  // namespace
}  // namespace pushpull
