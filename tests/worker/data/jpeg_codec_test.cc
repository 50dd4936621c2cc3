#include "worker/data/jpeg_codec.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// jpeglib.h uses FILE and size_t without including them, so it comes after <cstdio>.
#include <jpeglib.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/data/data_test_util.h"
#include "worker/data/augment/editable_image.h"
#include "worker/data/image_codec.h"

namespace pushpull {
namespace {

struct Kind {
  int height;
  int width;
  bool grey = false;
  int h_samples = 2;  // of the brightness for each one of the colours
  int v_samples = 2;
  bool progressive = false;
  int restart_rows = 0;
  bool arithmetic = false;  // coded instead of Huffman's code
};

// A file of an image with smooth areas, edges and noise.
std::string Encode(const Kind& kind) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* data = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's type
  jpeg_mem_dest(&jpeg, &data, &size);
  const int channels = kind.grey ? 1 : 3;
  jpeg.image_height = kind.height;
  jpeg.image_width = kind.width;
  jpeg.input_components = channels;
  jpeg.in_color_space = kind.grey ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  if (!kind.grey) {
    jpeg.comp_info[0].h_samp_factor = kind.h_samples;
    jpeg.comp_info[0].v_samp_factor = kind.v_samples;
  }
  if (kind.progressive) jpeg_simple_progression(&jpeg);
  jpeg.restart_in_rows = kind.restart_rows;
  jpeg.arith_code = kind.arithmetic;
  jpeg_start_compress(&jpeg, TRUE);
  std::vector<uint8_t> row(size_t{1} * kind.width * channels);
  uint32_t state = 1;
  for (int y = 0; y < kind.height; ++y) {
    for (size_t i = 0; i < row.size(); ++i) {
      state = state * 1664525u + 1013904223u;
      const int smooth = static_cast<int>(i) * 2 + y * 3 + (y / 11 + static_cast<int>(i) / 31) * 90;
      row[i] = static_cast<uint8_t>((smooth + (state >> 28)) % 256);
    }
    JSAMPROW pointer = row.data();
    jpeg_write_scanlines(&jpeg, &pointer, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string file(reinterpret_cast<char*>(data), size);
  jpeg_destroy_compress(&jpeg);
  std::free(data);
  return file;
}

std::vector<uint8_t> Cut(const Image& image, const PixelWindow& window) {
  std::vector<uint8_t> pixels;
  for (int y = 0; y < window.height; ++y) {
    const auto row =
        image.pixels.begin() + (int64_t{window.y + y} * image.width + window.x) * image.channels;
    pixels.insert(pixels.end(), row, row + int64_t{1} * window.width * image.channels);
  }
  return pixels;
}

// Expects that 200 windows have the pixels of the whole image.
void ExpectPartsOfTheWhole(const std::string& file, const Kind& kind) {
  Image whole;
  ASSERT_TRUE(DecodeJpeg(file, "whole", &whole).ok());
  ASSERT_EQ(whole.height, kind.height);
  uint32_t state = 5;
  const auto below = [&](int end) {
    state = state * 1664525u + 1013904223u;
    return static_cast<int>((state >> 8) % end);
  };
  for (int i = 0; i < 200; ++i) {
    PixelWindow window;
    window.y = below(kind.height);
    window.x = below(kind.width);
    window.height = 1 + below(kind.height - window.y);
    window.width = 1 + below(kind.width - window.x);
    SCOPED_TRACE(testing::Message()
                 << kind.height << " x " << kind.width << ", samples " << kind.h_samples << " x "
                 << kind.v_samples << ", progressive " << kind.progressive << ", window "
                 << window.y << " " << window.x << " " << window.height << " " << window.width);
    Image part;
    const absl::Status status = DecodeJpegPart(file, "part", window, &part);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(part.height, window.height);
    ASSERT_EQ(part.width, window.width);
    ASSERT_EQ(part.channels, whole.channels);
    ASSERT_EQ(part.pixels, Cut(whole, window));
  }
}

TEST(JpegCodecTest, APartHasThePixelsOfTheWholeImage) {
  std::vector<Kind> kinds = {{97, 131, true}, {16, 16}, {8, 200}, {200, 7}, {1, 1}, {3, 2}};
  for (const int h : {1, 2, 4}) {
    for (const int v : {1, 2}) {
      kinds.push_back({97, 131, false, h, v});
      kinds.push_back({96, 128, false, h, v, true});
      kinds.push_back({50, 211, false, h, v, false, 1});
    }
  }
  for (const Kind& kind : kinds) ExpectPartsOfTheWhole(Encode(kind), kind);
}

TEST(JpegCodecTest, APartOfADamagedImageHasThePixelsOfTheWhole) {
  std::string no_code;  // bits that are no valid code
  for (int i = 0; i < 10; ++i) no_code += std::string("\xff\0", 2);
  for (const Kind& kind : {Kind{97, 131, true}, Kind{97, 131}, Kind{96, 128, false, 1, 1, true},
                           Kind{50, 211, false, 2, 2, false, 1}}) {
    const std::string good = Encode(kind);
    std::string bad_code = good;
    bad_code.replace((good.rfind("\xff\xda") + good.size()) / 2, no_code.size(), no_code);
    std::vector<std::string> files = {EndJpegEarly(good), bad_code};
    if (kind.restart_rows > 0) {
      std::string no_restart = good;
      files.push_back(no_restart.replace(good.find("\xff\xd1"), 2, "\xff\xd5"));
    }
    for (const std::string& file : files) {
      Image image;
      ASSERT_TRUE(DecodeJpeg(file, "whole", &image).ok());
      // libjpeg-turbo's fast path takes an invalid code for a zero and gives no warning.
      if (file != bad_code) {
        EXPECT_NE(image.damage, "");
      }
      ExpectPartsOfTheWhole(file, kind);
    }
  }
}

TEST(JpegCodecTest, AnEditedImageIsDecodedWhenItsPixelsAreNeeded) {
  const std::string file = Encode({97, 131});
  for (int edits = 0; edits < 32; ++edits) {
    SCOPED_TRACE(edits);
    std::vector<std::vector<float>> got;
    for (const bool whole : {true, false}) {
      Image image;
      ASSERT_TRUE(DecodeAllButJpeg(file, "edited", &image).ok());
      EXPECT_TRUE(image.pixels.empty());
      if (whole) {
        ASSERT_TRUE(DecodeIfJpeg(&image).ok());
      }
      EditableImage edited;
      edited.Take(&image);
      if ((edits & 1) != 0) edited.Crop({20, 31, 50, 60});
      if ((edits & 2) != 0) edited.MirrorColumns();
      if ((edits & 4) != 0) edited.Pad(120, 140, 3, 2, {9, 8, 7});
      if ((edits & 8) != 0) edited.RotateCounterClockwise();
      if ((edits & 16) != 0) edited.Crop({1, 1, 30, 30});
      ASSERT_TRUE(edited.Decode().ok());
      got.push_back(edited.Floats());
    }
    EXPECT_EQ(got[0], got[1]);
  }
}

TEST(JpegCodecTest, DamageIsReportedByDecode) {
  const std::string file = Encode({97, 131});
  Image image;
  const std::string cut = file.substr(0, file.size() / 2);
  ASSERT_TRUE(DecodeAllButJpeg(cut, "cut.jpg", &image).ok());
  EXPECT_EQ(image.height, 97);
  EditableImage edited;
  edited.Take(&image);
  edited.Floats();
  const absl::Status status = edited.Decode();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("cut.jpg: the JPEG data"));
  EXPECT_EQ(DecodeAllButJpeg(file.substr(0, 100), "cut.jpg", &image).code(),
            absl::StatusCode::kDataLoss);
}

// Returns a progressive file whose last scan is there `extra` times more.
std::string RepeatLastScan(const std::string& progressive, int extra) {
  const size_t scan = progressive.rfind("\xff\xda");
  const std::string bytes = progressive.substr(scan, progressive.size() - 2 - scan);
  std::string file = progressive.substr(0, scan);
  for (int i = 0; i <= extra; ++i) file += bytes;
  return file + "\xff\xd9";
}

// A megabyte of scans of a hundred bytes each, of an image of the largest size, would take minutes.
TEST(JpegCodecTest, MoreThan100ScansAreRefused) {
  const std::string file = Encode({97, 131, false, 1, 1, true});
  int scans = 0;
  for (size_t at = 0; (at = file.find("\xff\xda", at)) != std::string::npos; ++at) ++scans;
  Image image;
  ASSERT_TRUE(DecodeJpeg(RepeatLastScan(file, 100 - scans), "100.jpg", &image).ok());
  const std::string many = RepeatLastScan(file, 101 - scans);
  for (const bool whole : {true, false}) {
    const absl::Status status = whole ? DecodeJpeg(many, "101.jpg", &image)
                                      : DecodeJpegPart(many, "101.jpg", {{1, 2, 30, 40}}, &image);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("101.jpg: JPEG with more than 100 scans"));
  }
}

TEST(JpegCodecTest, DamagedArithmeticCodeIsNamed) {
  std::string file = Encode({97, 131, false, 2, 2, false, 0, true});
  Image image;
  ASSERT_TRUE(DecodeJpeg(file, "a.jpg", &image).ok());
  EXPECT_EQ(image.damage, "");
  file.replace((file.rfind("\xff\xda") + file.size()) / 2, 400, std::string(400, '\0'));
  ASSERT_TRUE(DecodeJpeg(file, "a.jpg", &image).ok());
  EXPECT_THAT(image.damage, testing::HasSubstr("bad arithmetic code"));
}

}  // namespace
}  // namespace pushpull
