#include "kernels/image_block.h"

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/kernels/random_images.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr ImageInput kInput = {8, 6, 3, {}};

class CheckPackedImagesTest : public testing::Test {
 protected:
  // Returns the error message after `change` was applied to image 2.
  std::string After(const std::function<void(PackedImage*)>& change) {
    std::vector<char> block = RandomImages(kInput, 3, 1);
    PackedImage image;
    char* const at = block.data() + 2 * sizeof(image);
    std::memcpy(&image, at, sizeof(image));
    // Shows rows 1 and 2 and columns 0 to 3 of 4 x 4 pixels, upside down, with a column of padding.
    image.height = image.width = 4;
    image.channels = 1;
    image.map = WholeImage(2, 5);
    image.map.origin = {2, 0};
    image.map.down = {-1, 0};
    image.map.shown_end = {2, 4};
    image.resized_height = 8;
    image.offset = static_cast<int64_t>(block.size()) - 16;
    change(&image);
    std::memcpy(at, &image, sizeof(image));
    const absl::Status status = CheckPackedImages(kInput, 3, ViewOf(block));
    if (status.ok()) return "";
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("image 2 of the batch"));
    return std::string(status.message());
  }
};

TEST_F(CheckPackedImagesTest, AcceptsImagesInsideTheBlock) {
  EXPECT_EQ(After([](PackedImage*) {}), "");
  EXPECT_EQ(After([](PackedImage* p) { p->map.shown_end = {0, 0}; }), "");  // only padding
}

TEST_F(CheckPackedImagesTest, RefusesPixelsOutsideTheBlock) {
  EXPECT_THAT(After([](PackedImage* p) { p->offset = -16; }), HasSubstr("begin at byte -16"));
  EXPECT_THAT(After([](PackedImage* p) { p->offset -= 8; }), HasSubstr("multiple of 16"));
  EXPECT_THAT(After([](PackedImage* p) { p->offset += 16; }), HasSubstr("16 bytes from"));
  EXPECT_THAT(After([](PackedImage* p) { p->offset = std::numeric_limits<int64_t>::max() - 15; }),
              HasSubstr("begin at byte"));
  EXPECT_THAT(After([](PackedImage* p) { p->height = 5; }), HasSubstr("20 bytes from"));
  EXPECT_THAT(After([](PackedImage* p) { p->is_input = 1; }), HasSubstr("576 bytes from"));
}

TEST_F(CheckPackedImagesTest, RefusesInvalidSizes) {
  for (int32_t PackedImage::*const side : {&PackedImage::height, &PackedImage::width}) {
    EXPECT_THAT(After([side](PackedImage* p) { p->*side = 0; }), HasSubstr("are stored"));
    EXPECT_THAT(After([side](PackedImage* p) { p->*side = (1 << 24) + 1; }),
                HasSubstr("are stored"));
  }
  EXPECT_THAT(After([](PackedImage* p) { p->channels = 2; }), HasSubstr("4 x 4 x 2"));
  for (int32_t PixelMap::*const side : {&PixelMap::height, &PixelMap::width}) {
    EXPECT_THAT(After([side](PackedImage* p) {
                  p->map.*side = 0;
                  p->map.shown_end = {0, 0};
                }),
                HasSubstr("it shows"));
  }
  EXPECT_THAT(After([](PackedImage* p) { p->resized_height = 9; }), HasSubstr("resized to 9 x 6"));
  EXPECT_THAT(After([](PackedImage* p) { p->resized_width = 0; }), HasSubstr("resized to 8 x 0"));
  EXPECT_THAT(After([](PackedImage* p) { p->resized_width = 7; }), HasSubstr("resized to 8 x 7"));
  EXPECT_THAT(After([](PackedImage* p) { p->resized_height = 0; }), HasSubstr("resized to 0"));
}

TEST_F(CheckPackedImagesTest, RefusesMapsThatLeaveTheImage) {
  const auto expect_refused = [this](const std::function<void(PixelMap*)>& change) {
    EXPECT_THAT(After([&](PackedImage* p) { change(&p->map); }), HasSubstr("outside of the 4 x 4"));
  };
  expect_refused([](PixelMap* m) { m->origin.y = 0; });  // the second row is -1
  expect_refused([](PixelMap* m) { m->origin.y = 4; });  // the first row is 4
  expect_refused([](PixelMap* m) { m->origin.x = -1; });
  expect_refused([](PixelMap* m) { m->origin.x = 1; });     // the last column is 4
  expect_refused([](PixelMap* m) { m->shown_end.x = 5; });  // the last column is 4 as well
  expect_refused([](PixelMap* m) { m->shown_end.x = 6; });  // beyond the map itself
  expect_refused([](PixelMap* m) { m->shown_begin.x = -1; });
  expect_refused([](PixelMap* m) { m->origin.y = std::numeric_limits<int32_t>::min(); });
  expect_refused([](PixelMap* m) { m->origin.x = std::numeric_limits<int32_t>::max(); });
  expect_refused([](PixelMap* m) { m->down = {-2, 0}; });
  expect_refused([](PixelMap* m) { m->right = {1, 1}; });  // leaves the image diagonally
  expect_refused([](PixelMap* m) { m->right = {0, 1 << 30}; });
}

TEST(ImageBlockTest, RefusesABlockWithoutRoomForItsImages) {
  const std::vector<char> block = RandomImages(kInput, 2, 1);
  PackedImages view = ViewOf(block);
  view.bytes = ImageHeaderBytes(2) - 1;
  EXPECT_THAT(std::string(CheckPackedImages(kInput, 2, view).message()),
              HasSubstr("does not hold 2 images"));
}

TEST(ImageBlockTest, RefusesANetworkWithoutColours) {
  const std::vector<char> block = RandomImages(kInput, 2, 1);
  EXPECT_THAT(std::string(CheckPackedImages({8, 6, 2, {}}, 2, ViewOf(block)).message()),
              HasSubstr("reads 2 channels"));
}

TEST(ImageBlockTest, SizesLeaveRoomForTheLargestImages) {
  EXPECT_EQ(MaxImageBytes(8 * 6 * 3), 8 * 6 * 3 * 4);
  EXPECT_EQ(MaxImageBytes(7), 32);  // the next image starts aligned
  EXPECT_EQ(ImageBlockBytes(5, 7), ImageHeaderBytes(5) + 5 * 32);
  EXPECT_GE(ImageHeaderBytes(5), static_cast<int64_t>(5 * sizeof(PackedImage)));
  EXPECT_EQ(ImageHeaderBytes(5) % kImageAlignment, 0);
}

}  // namespace
}  // namespace pushpull
