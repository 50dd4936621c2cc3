#include "kernels/picture_block.h"

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testutil/kernels/random_pictures.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr PictureInput kInput = {8, 6, 3, {}};

class CheckPackedPicturesTest : public testing::Test {
 protected:
  // The message when picture 2 has been changed so.
  std::string After(const std::function<void(PackedPicture*)>& change) {
    std::vector<char> block = RandomPictures(kInput, 3, 1);
    PackedPicture picture;
    char* const at = block.data() + 2 * sizeof(picture);
    std::memcpy(&picture, at, sizeof(picture));
    // Rows 1 and 2, columns 0 to 3 of 4 x 4 pixels, upside down, with a column of padding.
    picture.height = picture.width = 4;
    picture.channels = 1;
    picture.map = WholePicture(2, 5);
    picture.map.origin = {2, 0};
    picture.map.down = {-1, 0};
    picture.map.shown_end = {2, 4};
    picture.resized_height = 8;
    picture.offset = static_cast<int64_t>(block.size()) - 16;
    change(&picture);
    std::memcpy(at, &picture, sizeof(picture));
    const absl::Status status = CheckPackedPictures(kInput, 3, ViewOf(block));
    if (status.ok()) return "";
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("picture 2 of the batch"));
    return std::string(status.message());
  }
};

TEST_F(CheckPackedPicturesTest, TakesWhatLiesInTheBlock) {
  EXPECT_EQ(After([](PackedPicture*) {}), "");
  EXPECT_EQ(After([](PackedPicture* p) { p->map.shown_end = {0, 0}; }), "");  // all padding
}

TEST_F(CheckPackedPicturesTest, RefusesPixelsOutsideOfTheBlock) {
  EXPECT_THAT(After([](PackedPicture* p) { p->offset = -16; }), HasSubstr("begin at byte -16"));
  EXPECT_THAT(After([](PackedPicture* p) { p->offset -= 8; }), HasSubstr("multiple of 16"));
  EXPECT_THAT(After([](PackedPicture* p) { p->offset += 16; }), HasSubstr("16 bytes from"));
  EXPECT_THAT(After([](PackedPicture* p) { p->offset = std::numeric_limits<int64_t>::max() - 15; }),
              HasSubstr("begin at byte"));
  EXPECT_THAT(After([](PackedPicture* p) { p->height = 5; }), HasSubstr("20 bytes from"));
  EXPECT_THAT(After([](PackedPicture* p) { p->is_input = 1; }), HasSubstr("576 bytes from"));
}

TEST_F(CheckPackedPicturesTest, RefusesSizesThatAreNone) {
  for (int32_t PackedPicture::*const side : {&PackedPicture::height, &PackedPicture::width}) {
    EXPECT_THAT(After([side](PackedPicture* p) { p->*side = 0; }), HasSubstr("are stored"));
    EXPECT_THAT(After([side](PackedPicture* p) { p->*side = (1 << 24) + 1; }),
                HasSubstr("are stored"));
  }
  EXPECT_THAT(After([](PackedPicture* p) { p->channels = 2; }), HasSubstr("4 x 4 x 2"));
  for (int32_t PixelMap::*const side : {&PixelMap::height, &PixelMap::width}) {
    EXPECT_THAT(After([side](PackedPicture* p) {
                  p->map.*side = 0;
                  p->map.shown_end = {0, 0};
                }),
                HasSubstr("it shows"));
  }
  EXPECT_THAT(After([](PackedPicture* p) { p->resized_height = 9; }),
              HasSubstr("resized to 9 x 6"));
  EXPECT_THAT(After([](PackedPicture* p) { p->resized_width = 0; }), HasSubstr("resized to 8 x 0"));
  EXPECT_THAT(After([](PackedPicture* p) { p->resized_width = 7; }), HasSubstr("resized to 8 x 7"));
  EXPECT_THAT(After([](PackedPicture* p) { p->resized_height = 0; }), HasSubstr("resized to 0"));
}

TEST_F(CheckPackedPicturesTest, RefusesMapsThatLeaveThePicture) {
  const auto expect_refused = [this](const std::function<void(PixelMap*)>& change) {
    EXPECT_THAT(After([&](PackedPicture* p) { change(&p->map); }),
                HasSubstr("outside of the 4 x 4"));
  };
  expect_refused([](PixelMap* m) { m->origin.y = 0; });  // the second row is -1
  expect_refused([](PixelMap* m) { m->origin.y = 4; });  // the first row is 4
  expect_refused([](PixelMap* m) { m->origin.x = -1; });
  expect_refused([](PixelMap* m) { m->origin.x = 1; });     // the last column is 4
  expect_refused([](PixelMap* m) { m->shown_end.x = 5; });  // likewise
  expect_refused([](PixelMap* m) { m->shown_end.x = 6; });  // beyond the map itself
  expect_refused([](PixelMap* m) { m->shown_begin.x = -1; });
  expect_refused([](PixelMap* m) { m->origin.y = std::numeric_limits<int32_t>::min(); });
  expect_refused([](PixelMap* m) { m->origin.x = std::numeric_limits<int32_t>::max(); });
  expect_refused([](PixelMap* m) { m->down = {-2, 0}; });
  expect_refused([](PixelMap* m) { m->right = {1, 1}; });  // diagonally out of the picture
  expect_refused([](PixelMap* m) { m->right = {0, 1 << 30}; });
}

TEST(PictureBlockTest, RefusesABlockWithoutRoomForItsPictures) {
  const std::vector<char> block = RandomPictures(kInput, 2, 1);
  PackedPictures view = ViewOf(block);
  view.bytes = PictureHeaderBytes(2) - 1;
  EXPECT_THAT(std::string(CheckPackedPictures(kInput, 2, view).message()),
              HasSubstr("does not hold 2 pictures"));
}

TEST(PictureBlockTest, RefusesANetworkWithoutColours) {
  const std::vector<char> block = RandomPictures(kInput, 2, 1);
  EXPECT_THAT(std::string(CheckPackedPictures({8, 6, 2, {}}, 2, ViewOf(block)).message()),
              HasSubstr("reads 2 channels"));
}

TEST(PictureBlockTest, SizesLeaveRoomForTheLargestPictures) {
  EXPECT_EQ(MaxPictureBytes(8 * 6 * 3), 8 * 6 * 3 * 4);
  EXPECT_EQ(MaxPictureBytes(7), 32);  // the next begins aligned
  EXPECT_EQ(PictureBlockBytes(5, 7), PictureHeaderBytes(5) + 5 * 32);
  EXPECT_GE(PictureHeaderBytes(5), static_cast<int64_t>(5 * sizeof(PackedPicture)));
  EXPECT_EQ(PictureHeaderBytes(5) % kPictureAlignment, 0);
}

}  // namespace
}  // namespace pushpull
