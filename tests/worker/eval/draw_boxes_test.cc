#include "worker/eval/draw_boxes.h"

#include <cstdlib>
#include <limits>
#include <string>

#include "gtest/gtest.h"

#include "worker/data/image_codec.h"
#include "worker/data/image_encoder.h"

namespace pushpull {
namespace {

using Color = std::array<uint8_t, 3>;

constexpr Color kGrey = {100, 100, 100};

Image Grey(int height, int width, int channels) {
  return {height, width, channels,
          std::vector<uint8_t>(size_t{1} * height * width * channels, 100)};
}

Color At(const Image& image, int y, int x) {
  const uint8_t* pixel = &image.pixels[(size_t{1} * y * image.width + x) * 3];
  return {pixel[0], pixel[1], pixel[2]};
}

const std::vector<std::string>& Names() {
  static const auto* names = new std::vector<std::string>{"cat", "dog"};
  return *names;
}

DetectionRecord Found(PixelBox box, int32_t label, float score) {
  return {"image", {}, {{box, label, score}}};
}

TEST(DrawBoxesTest, DrawsASolidFrameInTheColorOfTheClass) {
  const Image drawn = DrawBoxes(Grey(100, 200, 3), Found({20, 30, 60, 90}, 1, 0.87f), Names(), {});
  const Color color = ClassColor(1);
  for (int x = 30; x < 90; ++x) {
    EXPECT_EQ(At(drawn, 20, x), color) << x;
    EXPECT_EQ(At(drawn, 21, x), color) << x;
    EXPECT_EQ(At(drawn, 59, x), color) << x;
  }
  for (int y = 20; y < 60; ++y) {
    EXPECT_EQ(At(drawn, y, 30), color) << y;
    EXPECT_EQ(At(drawn, y, 89), color) << y;
  }
  EXPECT_EQ(At(drawn, 40, 60), kGrey);  // inside the frame
  EXPECT_EQ(At(drawn, 22, 32), kGrey);  // just inside the frame's line
  EXPECT_EQ(At(drawn, 60, 60), kGrey);  // below the frame
  EXPECT_EQ(At(drawn, 40, 90), kGrey);  // right of the frame
  EXPECT_EQ(At(drawn, 9, 30), color);   // the label's strip is 11 pixels high above the frame
  EXPECT_EQ(At(drawn, 8, 30), kGrey);
}

TEST(DrawBoxesTest, LabelSpellsNameAndScore) {
  const Image drawn = DrawBoxes(Grey(100, 200, 3), Found({20, 30, 60, 90}, 1, 0.87f), Names(), {});
  std::string text;
  for (int y = 9; y < 20; ++y) {
    for (int x = 30; x < 76; ++x) text += At(drawn, y, x) == ClassColor(1) ? '.' : '#';
    text += '\n';
  }
  EXPECT_EQ(text,
            "..............................................\n"
            "....#........................##...####..##..#.\n"
            "....#.......................#..#.....#..##..#.\n"
            "..###...##....###..#........#..#.....#.....#..\n"
            ".#..#..#..#..#..#............##.....#.....#...\n"
            ".#..#..#..#..#..#...........#..#....#....#....\n"
            ".#..#..#..#..#..#..#........#..#...#....#..##.\n"
            "..###...##....###............##....#....#..##.\n"
            "................#.............................\n"
            "..............##..............................\n"
            "..............................................\n");
}

TEST(DrawBoxesTest, DrawsGroundTruthDashedWithItsNameBelow) {
  const DetectionRecord record{"image", {{{20, 30, 60, 90}, 0}}, {}};
  const Image drawn = DrawBoxes(Grey(100, 200, 3), record, Names(), {});
  int painted = 0;
  for (int x = 30; x < 90; ++x) painted += At(drawn, 20, x) == ClassColor(0) ? 1 : 0;
  EXPECT_GT(painted, 20);
  EXPECT_LT(painted, 40);
  EXPECT_EQ(At(drawn, 21, 40), kGrey);             // the frame is one pixel thin
  EXPECT_EQ(At(drawn, 60, 30), (Color{0, 0, 0}));  // the label's strip
}

TEST(DrawBoxesTest, LabelOfGroundTruthNamesItsKind) {
  const auto draw = [](const std::string& name, bool difficult, bool crowd, bool group) {
    TruthBox truth{{20, 30, 60, 90}, 0};
    truth.difficult = difficult;
    truth.is_crowd = crowd;
    truth.is_group_of = group;
    return DrawBoxes(Grey(100, 200, 3), {"image", {truth}, {}}, {name}, {}).pixels;
  };
  // The same pixels as for a class whose name has these words.
  EXPECT_EQ(draw("cat", true, false, false), draw("cat (difficult)", false, false, false));
  EXPECT_EQ(draw("cat", false, true, false), draw("cat (crowd)", false, false, false));
  EXPECT_EQ(draw("cat", false, false, true), draw("cat (group)", false, false, false));
  EXPECT_NE(draw("cat (crowd)", false, false, false), draw("cat (group)", false, false, false));
}

TEST(DrawBoxesTest, AClassWithoutANameIsShownAsItsId) {
  const auto draw = [](const std::vector<std::string>& names) {
    return DrawBoxes(Grey(100, 200, 3), {"image", {}, {{{20, 30, 60, 90}, 1, 0.5f}}}, names, {})
        .pixels;
  };
  EXPECT_EQ(draw({"cat", ""}), draw({"cat", "2"})) << "a gap in the label map";
  EXPECT_EQ(draw({}), draw({"cat", "2"}));
}

TEST(DrawBoxesTest, DrawsOnlyTheBestDetectionsAboveTheScore) {
  DetectionRecord record{"image", {}, {}};
  for (int i = 0; i < 4; ++i) {
    const float x = 20.0f * i;
    record.detections.push_back({{50, x, 60, x + 10}, 0, 0.25f * (i + 1)});
  }
  DrawOptions options;
  options.min_score = 0.5f;
  options.max_detections = 2;
  const Image drawn = DrawBoxes(Grey(100, 100, 3), record, Names(), options);
  EXPECT_EQ(At(drawn, 59, 0), kGrey);   // below the minimum score
  EXPECT_EQ(At(drawn, 59, 20), kGrey);  // the third of at most two
  EXPECT_EQ(At(drawn, 59, 40), ClassColor(0));
  EXPECT_EQ(At(drawn, 59, 60), ClassColor(0));
}

TEST(DrawBoxesTest, DrawsTheBestDetectionOnTop) {
  DetectionRecord record{"image", {}, {{{50, 20, 60, 40}, 0, 0.9f}, {{50, 20, 60, 40}, 1, 0.8f}}};
  const Image drawn = DrawBoxes(Grey(100, 100, 3), record, Names(), {});
  EXPECT_EQ(At(drawn, 59, 30), ClassColor(0));
}

TEST(DrawBoxesTest, CutsOffAtTheBorder) {
  const Image drawn = DrawBoxes(Grey(50, 50, 3), Found({-30, -40, 30, 500}, 0, 0.9f), Names(), {});
  EXPECT_EQ(At(drawn, 29, 0), ClassColor(0));
  EXPECT_EQ(At(drawn, 29, 49), ClassColor(0));
  EXPECT_EQ(At(drawn, 20, 49), kGrey);
  EXPECT_EQ(At(drawn, 0, 0), ClassColor(0));  // the label moves into the image
}

TEST(DrawBoxesTest, IgnoresBoxesOutsideTheImageAndNonFiniteOnes) {
  const Image plain = Grey(50, 50, 3);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const PixelBox& box :
       {PixelBox{60, 60, 90, 90}, PixelBox{-90, 0, -10, 10}, PixelBox{0, 0, nan, 10},
        PixelBox{0, 0, 10, infinity}, PixelBox{1e30f, 1e30f, 2e30f, 2e30f}}) {
    DetectionRecord record = Found(box, 0, 0.9f);
    record.ground_truth.push_back({box, 1});
    EXPECT_EQ(DrawBoxes(plain, record, Names(), {}).pixels, plain.pixels) << box.ymin;
  }
  const PixelBox huge = {-1e30f, -1e30f, 1e30f, 1e30f};
  EXPECT_EQ(At(DrawBoxes(plain, Found(huge, 0, 0.9f), Names(), {}), 40, 25), kGrey);
}

TEST(DrawBoxesTest, ReturnsTheImageAsRgbIfThereIsNothingToDraw) {
  EXPECT_EQ(DrawBoxes(Grey(5, 7, 3), {}, Names(), {}).pixels, Grey(5, 7, 3).pixels);
  const Image from_grey = DrawBoxes(Grey(5, 7, 1), {}, Names(), {});
  EXPECT_EQ(from_grey.channels, 3);
  EXPECT_EQ(from_grey.pixels, Grey(5, 7, 3).pixels);
}

TEST(DrawBoxesTest, DrawsOnAnImageOfOnePixel) {
  DetectionRecord record = Found({0, 0, 1, 1}, 7, 0.9f);  // label 7 has no name
  record.ground_truth.push_back({{0, 0, 0, 0}, 0, true, true});
  const Image drawn = DrawBoxes(Grey(1, 1, 1), record, Names(), {});
  EXPECT_EQ(At(drawn, 0, 0), ClassColor(7));
}

TEST(DrawBoxesTest, SurvivesThePngRoundTrip) {
  const Image drawn = DrawBoxes(Grey(40, 60, 3), Found({12, 5, 30, 50}, 1, 0.5f), Names(), {});
  std::string bytes;
  ASSERT_TRUE(EncodePng(drawn, &bytes).ok());
  Image decoded;
  ASSERT_TRUE(DecodePng(bytes, "drawn", &decoded).ok());
  EXPECT_EQ(decoded.pixels, drawn.pixels);
}

TEST(DrawBoxesTest, NeighbouringLabelsDifferInColor) {
  for (int label = 0; label < 90; ++label) {
    const Color a = ClassColor(label);
    const Color b = ClassColor(label + 1);
    int difference = 0;
    for (int c = 0; c < 3; ++c) difference += std::abs(a[c] - b[c]);
    EXPECT_GT(difference, 150) << label;
  }
}

TEST(DrawBoxesTest, CharactersThatTheFontLacksBecomeQuestionMarks) {
  const DetectionRecord record = Found({20, 30, 60, 90}, 0, 0.87f);
  const Image lacking =
      DrawBoxes(Grey(100, 200, 3), record, {"caf\xc3\xa9 \xe7\x8c\xab\n\x7f"}, {});
  const Image question = DrawBoxes(Grey(100, 200, 3), record, {"caf? ???"}, {});
  EXPECT_EQ(lacking.pixels, question.pixels);
}

}  // namespace
}  // namespace pushpull
