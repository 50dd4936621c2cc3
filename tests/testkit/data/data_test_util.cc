#include "tests/testkit/data/data_test_util.h"

#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace pushpull {

std::string Gzip(absl::string_view bytes) {
  z_stream stream{};
  CHECK_EQ(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  CHECK_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Idx(uint32_t magic, const std::vector<uint32_t>& dims, absl::string_view data) {
  std::string out;
  const auto append = [&out](uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
  };
  append(magic);
  for (const uint32_t dim : dims) append(dim);
  absl::StrAppend(&out, data);
  return out;
}

std::string IdxImages(uint32_t n, uint32_t height, uint32_t width) {
  std::string data(size_t{n} * height * width, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i % 251);
  return Idx(0x803, {n, height, width}, data);
}

std::string IdxLabels(uint32_t n, int num_classes) {
  std::string data(n, '\0');
  for (uint32_t i = 0; i < n; ++i) data[i] = static_cast<char>(i % num_classes);
  return Idx(0x801, {n}, data);
}

Image MakeImage(int height, int width, int channels) {
  Image image{height, width, channels, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        image.pixels.push_back(static_cast<uint8_t>((7 * y + 3 * x + 50 * c) % 256));
      }
    }
  }
  return image;
}

std::string EncodePng(const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = image.width;
  png.height = image.height;
  png.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  CHECK(png_image_write_to_memory(&png, nullptr, &size, 0, image.pixels.data(), 0, nullptr));
  std::string out(size, '\0');
  CHECK(png_image_write_to_memory(&png, out.data(), &size, 0, image.pixels.data(), 0, nullptr));
  out.resize(size);
  return out;
}

std::string EncodeJpeg(const Image& image, int quality) {
  jpeg_error_mgr error;
  jpeg_compress_struct jpeg{};
  jpeg.err = jpeg_std_error(&error);
  jpeg_create_compress(&jpeg);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &out, &size);
  jpeg.image_width = image.width;
  jpeg.image_height = image.height;
  jpeg.input_components = image.channels;
  jpeg.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(image.pixels.data()) +
                   size_t{jpeg.next_scanline} * image.width * image.channels;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string bytes(reinterpret_cast<char*>(out), size);
  jpeg_destroy_compress(&jpeg);
  std::free(out);
  return bytes;
}

std::string EndJpegEarly(std::string jpeg) {
  const size_t scan = jpeg.rfind("\xff\xda");
  return jpeg.insert((scan + jpeg.size()) / 2, "\xff\xd9");
}

std::string EncodePgm(const Image& image) {
  return absl::StrCat(
      "P5\n# a comment\n", image.width, " ", image.height, "\n255\n",
      absl::string_view(reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size()));
}

FakeSource::FakeSource(int64_t size, int height, int width, int channels, int num_classes)
    : size_(size), height_(height), width_(width), channels_(channels), num_classes_(num_classes) {}

absl::Status FakeSource::Get(int64_t index, Example* example) const {
  CHECK_GE(index, 0);
  CHECK_LT(index, size_);
  if (index == bad_index) return absl::DataLossError(absl::StrCat("example ", index, " is bad"));
  example->image.height = height_;
  example->image.width = width_;
  example->image.channels = channels_;
  example->image.pixels.assign(size_t{1} * height_ * width_ * channels_,
                               static_cast<uint8_t>(index % 256));
  example->label = static_cast<int32_t>(index % num_classes_);
  return absl::OkStatus();
}

}  // namespace pushpull
