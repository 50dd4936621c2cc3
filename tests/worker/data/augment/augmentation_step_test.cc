#include "worker/data/augment/augmentation_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "worker/data/augment/colour_steps.h"
#include "worker/data/augment/crop_steps.h"
#include "worker/data/augment/geometry_steps.h"

namespace pushpull {
namespace {

std::unique_ptr<AugmentationStep> Make(const std::string& text) {
  config::PreprocessingStep step;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &step)) << text;
  return MakeAugmentationStep(step);
}

// A dark image with one bright rectangle, and the box around the rectangle.
struct Marked {
  Marked(int height, int width, const PixelWindow& mark) {
    Image drawn;
    drawn.height = height;
    drawn.width = width;
    drawn.channels = 3;
    drawn.pixels.assign(size_t{3} * height * width, 10);
    for (int y = mark.y; y < mark.y + mark.height; ++y) {
      for (int x = mark.x; x < mark.x + mark.width; ++x) {
        for (int c = 0; c < 3; ++c) {
          drawn.pixels[3 * (size_t{1} * y * width + x) + c] = static_cast<uint8_t>(200 + 10 * c);
        }
      }
    }
    const float h = static_cast<float>(height);
    const float w = static_cast<float>(width);
    boxes.push_back(
        {mark.y / h, mark.x / w, (mark.y + mark.height) / h, (mark.x + mark.width) / w, 4});
    image.Take(&drawn);
  }

  // Returns the extent of the bright pixels.
  PixelWindow FindMark() {
    const PixelView view = image.View();
    int top = view.height, left = view.width, bottom = 0, right = 0;
    for (int y = 0; y < view.height; ++y) {
      for (int x = 0; x < view.width; ++x) {
        const int64_t i = 3 * (int64_t{1} * y * view.width + x);
        if ((view.bytes != nullptr ? view.bytes[i] : view.floats[i]) < 150) continue;
        top = std::min(top, y);
        left = std::min(left, x);
        bottom = std::max(bottom, y + 1);
        right = std::max(right, x + 1);
      }
    }
    return {top, left, bottom - top, right - left};
  }

  void ExpectBoxAroundMark() {
    ASSERT_EQ(boxes.size(), 1u);
    const PixelWindow mark = FindMark();
    const float h = static_cast<float>(image.height());
    const float w = static_cast<float>(image.width());
    EXPECT_NEAR(boxes[0].ymin * h, mark.y, 1e-3);
    EXPECT_NEAR(boxes[0].xmin * w, mark.x, 1e-3);
    EXPECT_NEAR(boxes[0].ymax * h, mark.y + mark.height, 1e-3);
    EXPECT_NEAR(boxes[0].xmax * w, mark.x + mark.width, 1e-3);
    EXPECT_EQ(boxes[0].label, 4);
  }

  EditableImage image;
  std::vector<Box> boxes;
};

TEST(AugmentationStepTest, BoxesFollowThePixels) {
  for (const char* text :
       {"random_horizontal_flip {}", "random_vertical_flip {}", "random_rotation90 {}",
        "random_pad_image {}", "random_pad_image { pad_color: [1, 2, 3] max_image_height: 90 }",
        "ssd_random_crop { operations { min_object_covered: 1 overlap_thresh: 1 min_area: 0.1 "
        "max_area: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 } }",
        "ssd_random_crop_pad { operations { min_object_covered: 1 overlap_thresh: 1 min_area: 0.1 "
        "max_area: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 min_padded_size_ratio: [1, 1] "
        "max_padded_size_ratio: [2, 2] } }",
        "ssd_random_crop_fixed_aspect_ratio { aspect_ratio: 1.5 operations { min_object_covered: 1 "
        "overlap_thresh: 1 min_area: 0.1 max_area: 1 } }",
        "random_crop_image {}"}) {
    SCOPED_TRACE(text);
    const auto step = Make(text);
    std::map<std::vector<int>, int> outcomes;
    for (int i = 0; i < 60; ++i) {
      Marked marked(40, 60, {8, 21, 13, 17});
      CounterRandom random(5, i);
      step->Apply(&random, &marked.image, &marked.boxes);
      marked.ExpectBoxAroundMark();
      const PixelWindow mark = marked.FindMark();
      ++outcomes[{mark.y, mark.x, mark.height, marked.image.height(), marked.image.width()}];
    }
    EXPECT_GE(outcomes.size(), 2u);
  }
}

// Returns whether the step changes the image with each of `count` streams of random numbers.
std::vector<bool> Changes(const std::string& text, int count) {
  const auto step = Make(text);
  std::vector<bool> changes;
  for (int i = 0; i < count; ++i) {
    Marked marked(2, 4, {0, 0, 1, 1});
    CounterRandom random(11, i);
    step->Apply(&random, &marked.image, &marked.boxes);
    const PixelWindow mark = marked.FindMark();
    changes.push_back(mark.x != 0 || mark.y != 0);
  }
  return changes;
}

TEST(AugmentationStepTest, FlipsAndRotationsHaveTheirProbability) {
  constexpr int kCount = 2000;
  for (const char* name : {"random_horizontal_flip", "random_vertical_flip", "random_rotation90"}) {
    SCOPED_TRACE(name);
    const auto changes = [name](const std::string& probability) {
      return Changes(std::string(name) + " { " + probability + " }", kCount);
    };
    const auto never = changes("probability: 0");
    EXPECT_EQ(std::count(never.begin(), never.end(), true), 0);
    const auto always = changes("probability: 1");
    EXPECT_EQ(std::count(always.begin(), always.end(), true), kCount);
    for (const double p : {0.1, 0.25, 0.8}) {
      const auto some = changes("probability: " + std::to_string(p));
      const double deviation = std::sqrt(kCount * p * (1 - p));
      EXPECT_NEAR(std::count(some.begin(), some.end(), true), kCount * p, 4 * deviation);
    }
    // The lowest bit of the first word decides if the config sets no probability.
    std::vector<bool> bits;
    for (int i = 0; i < kCount; ++i) {
      CounterRandom random(11, i);
      bits.push_back((random.NextUint32() & 1) != 0);
    }
    EXPECT_EQ(changes(""), bits);
    EXPECT_EQ(changes("probability: 0.5"), bits);
  }
}

TEST(AugmentationStepTest, RotationIsCounterClockwise) {
  Image drawn;
  drawn.height = 2;
  drawn.width = 3;
  drawn.channels = 1;
  drawn.pixels = {1, 2, 3, 4, 5, 6};
  EditableImage image;
  image.Take(&drawn);
  image.RotateCounterClockwise();
  EXPECT_EQ(image.height(), 3);
  EXPECT_EQ(image.width(), 2);
  const std::vector<uint8_t> got(image.View().bytes, image.View().bytes + 6);
  EXPECT_EQ(got, (std::vector<uint8_t>{3, 6, 2, 5, 1, 4}));
}

TEST(AugmentationStepTest, PaddingUsesTheMeanColourByDefault) {
  Marked marked(10, 10, {0, 0, 10, 10});
  CounterRandom random(1, 1);
  PadRandomly({20, 20, 20, 20}, std::nullopt, &random, &marked.image, &marked.boxes);
  const PixelView view = marked.image.View();
  ASSERT_EQ(view.height, 20);
  for (int i = 0; i < 3 * 400; ++i) EXPECT_EQ(view.bytes[i], 200 + 10 * (i % 3));
  EXPECT_NEAR(marked.boxes[0].ymax - marked.boxes[0].ymin, 0.5f, 1e-6);
}

// As TensorFlow does, an operation pads with black where it sets no colour.
TEST(AugmentationStepTest, PaddingBehindACropUsesTheColourOfTheConfig) {
  struct Case {
    const char* colour;
    std::array<int, 3> expected;
  };
  for (const Case& c : {Case{"pad_color_r: 11 pad_color_g: 22 pad_color_b: 33", {11, 22, 33}},
                        Case{"pad_color_g: 22", {0, 22, 0}}, Case{"", {0, 0, 0}}}) {
    SCOPED_TRACE(c.colour);
    Marked marked(10, 10, {0, 0, 10, 10});
    CounterRandom random(1, 1);
    Make(std::string("ssd_random_crop_pad { operations { min_padded_size_ratio: [2, 2] "
                     "max_padded_size_ratio: [2, 2] ") +
         c.colour + " } }")
        ->Apply(&random, &marked.image, &marked.boxes);
    const PixelView view = marked.image.View();
    ASSERT_EQ(view.height, 20);
    ASSERT_EQ(view.width, 20);
    int padded = 0;
    for (int i = 0; i < 3 * 400; i += 3) {
      if (view.bytes[i] == 200) continue;
      ++padded;
      for (int k = 0; k < 3; ++k) EXPECT_EQ(view.bytes[i + k], c.expected[k]);
    }
    EXPECT_GE(padded, 300);
  }
}

TEST(AugmentationStepTest, CropsAndPadsWithTensorflowsDefaults) {
  const std::vector<CropPadOptions> options = DefaultSsdCropPads();
  ASSERT_EQ(options.size(), 6u);
  const std::vector<float> covered = {0.1f, 0.3f, 0.5f, 0.7f, 0.9f, 1.0f};
  for (size_t i = 0; i < options.size(); ++i) {
    EXPECT_EQ(options[i].crop.min_object_covered, covered[i]);
    EXPECT_EQ(options[i].crop.overlap_thresh, covered[i]);
    EXPECT_EQ(options[i].crop.min_aspect_ratio, 0.5f);
    EXPECT_EQ(options[i].crop.max_aspect_ratio, 2.0f);
    EXPECT_EQ(options[i].crop.min_area, 0.1f);
    EXPECT_EQ(options[i].crop.max_area, 1.0f);
    EXPECT_EQ(options[i].crop.random_coef, 0.15f);
  }
  // All pixels have one colour, which is their mean too.
  std::set<int> heights;
  for (int i = 0; i < 60; ++i) {
    Marked marked(10, 10, {0, 0, 10, 10});
    CounterRandom random(12, i);
    Make("ssd_random_crop_pad {}")->Apply(&random, &marked.image, &marked.boxes);
    const PixelView view = marked.image.View();
    heights.insert(view.height);
    for (int k = 0; k < 3 * view.height * view.width; ++k) {
      ASSERT_EQ(view.bytes[k], 200 + 10 * (k % 3));
    }
  }
  EXPECT_GE(*heights.begin(), 10);
  EXPECT_EQ(*heights.rbegin(), 20);
}

// Every drawn window obeys the limits on area, aspect ratio and coverage.
TEST(CropTest, WindowsObeyAreaAspectAndCoverage) {
  CropOptions options;
  options.min_object_covered = 0.6f;
  options.min_aspect_ratio = 0.5f;
  options.max_aspect_ratio = 2.0f;
  options.min_area = 0.2f;
  options.max_area = 0.7f;
  const std::vector<Box> boxes = {{0.1f, 0.1f, 0.3f, 0.4f}, {0.6f, 0.5f, 0.9f, 0.8f}};
  int found = 0;
  for (int i = 0; i < 500; ++i) {
    CounterRandom random(3, i);
    const auto window = SampleCropWindow(options, 120, 200, boxes, &random);
    if (!window.has_value()) continue;
    ++found;
    const double area = static_cast<double>(window->height) * window->width / (120.0 * 200.0);
    EXPECT_GE(area, 0.2 - 1e-9);
    EXPECT_LE(area, 0.7 + 1e-9);
    const double aspect = static_cast<double>(window->width) / window->height;
    EXPECT_GE(aspect, 0.5 - 0.6 / window->height);
    EXPECT_LE(aspect, 2.0 + 0.6 / window->height);
    EXPECT_GE(window->y, 0);
    EXPECT_LE(window->y + window->height, 120);
    EXPECT_LE(window->x + window->width, 200);
    double best = 0.0;
    for (const Box& box : boxes) {
      const double rows = std::min<double>(box.ymax * 120, window->y + window->height) -
                          std::max<double>(box.ymin * 120, window->y);
      const double columns = std::min<double>(box.xmax * 200, window->x + window->width) -
                             std::max<double>(box.xmin * 200, window->x);
      const double size = (box.ymax - box.ymin) * 120.0 * (box.xmax - box.xmin) * 200.0;
      best = std::max(best, std::max(rows, 0.0) * std::max(columns, 0.0) / size);
    }
    EXPECT_GE(best, 0.6 - 1e-4);
  }
  EXPECT_GT(found, 450);
}

// Only a quarter of the box is in the image. A window has to cover 0.9 of that quarter.
TEST(CropTest, CoverageCountsTheVisiblePartOfABox) {
  CropOptions options;
  options.min_object_covered = 0.9f;
  options.min_aspect_ratio = 0.5f;
  options.max_aspect_ratio = 2.0f;
  options.min_area = 0.3f;
  options.max_area = 1.0f;
  int found = 0;
  for (int i = 0; i < 100; ++i) {
    CounterRandom random(3, i);
    const auto window = SampleCropWindow(options, 100, 100, {{-0.5f, -0.5f, 0.5f, 0.5f}}, &random);
    if (!window.has_value()) continue;
    ++found;
    const int rows = std::min(50, window->y + window->height) - window->y;
    const int columns = std::min(50, window->x + window->width) - window->x;
    EXPECT_GE(rows * columns, 0.9 * 50 * 50 - 1e-3);
  }
  EXPECT_GT(found, 80);
  CounterRandom random(3, 3);
  EXPECT_FALSE(SampleCropWindow(options, 100, 100, {{1.1f, 0.1f, 1.4f, 0.9f}}, &random).has_value())
      << "nothing of the box is in the image";
}

// Without a first crop (random_coef: 1), the second takes the largest window of the aspect ratio
// from every place along the longer side.
TEST(CropTest, AFixedAspectRatioCutsTheLargestWindowAtAnyPlace) {
  struct Case {
    int height, width;
    const char* aspect_ratio;
    int window_height, window_width;
  };
  for (const Case& c :
       {Case{6, 10, "", 6, 6}, Case{6, 10, "aspect_ratio: 2", 5, 10},
        Case{10, 6, "aspect_ratio: 0.25", 10, 2},  // 2.5 rounds to the even number
        Case{6, 6, "aspect_ratio: 1", 6, 6}, Case{3, 4, "aspect_ratio: 1000", 1, 4}}) {
    SCOPED_TRACE(c.aspect_ratio);
    const auto step =
        Make(std::string("ssd_random_crop_fixed_aspect_ratio { operations { random_coef: 1 } ") +
             c.aspect_ratio + " }");
    std::set<std::pair<int, int>> places;
    for (int i = 0; i < 300; ++i) {
      Marked marked(c.height, c.width, {0, 0, c.height, c.width});
      CounterRandom random(4, i);
      step->Apply(&random, &marked.image, &marked.boxes);
      ASSERT_EQ(marked.image.height(), c.window_height);
      ASSERT_EQ(marked.image.width(), c.window_width);
      places.emplace(marked.image.map().origin.y, marked.image.map().origin.x);
    }
    const int expected = c.height - c.window_height + c.width - c.window_width + 1;
    EXPECT_EQ(static_cast<int>(places.size()), expected);
  }
}

// The first crop's windows have the ratio too: at an area of exactly a quarter there is one size.
TEST(CropTest, AFixedAspectRatioHoldsForTheFirstCrop) {
  const auto step = Make(
      "ssd_random_crop_fixed_aspect_ratio { aspect_ratio: 2 operations { min_area: 0.25 "
      "max_area: 0.25 } }");
  for (int i = 0; i < 50; ++i) {
    Marked marked(40, 80, {0, 0, 40, 80});
    CounterRandom random(6, i);
    step->Apply(&random, &marked.image, &marked.boxes);
    EXPECT_EQ(marked.image.height(), 20);
    EXPECT_EQ(marked.image.width(), 40);
  }
}

TEST(CropTest, AFixedAspectRatioUsesTheSsdCropsByDefault) {
  const auto step = Make("ssd_random_crop_fixed_aspect_ratio {}");
  std::map<int, int> sides;
  for (int i = 0; i < 1000; ++i) {
    Marked marked(60, 60, {10, 10, 40, 40});
    CounterRandom random(7, i);
    step->Apply(&random, &marked.image, &marked.boxes);
    ASSERT_EQ(marked.image.height(), marked.image.width());
    ++sides[marked.image.height()];
  }
  // An area of 0.1 to 1, and the whole image at least where random_coef (0.15) says so.
  EXPECT_GE(sides.begin()->first, 18);
  EXPECT_GT(sides.size(), 30u);
  EXPECT_GT(sides[60], 120);
}

// A window of half the width keeps a box if it holds 0.3 of it, whatever the first crop's limit is.
TEST(CropTest, AFixedAspectRatioDropsBoxesThatItHardlyShows) {
  for (const bool clip : {true, false}) {
    const auto step = Make(std::string("ssd_random_crop_fixed_aspect_ratio { operations { "
                                       "random_coef: 1 overlap_thresh: 1 clip_boxes: ") +
                           (clip ? "true" : "false") + " } }");
    std::set<bool> outcomes;
    for (int i = 0; i < 200; ++i) {
      Marked marked(10, 20, {0, 0, 10, 8});
      CounterRandom random(8, i);
      step->Apply(&random, &marked.image, &marked.boxes);
      const int left = marked.image.map().origin.x;  // of the window; the box ends at 8
      outcomes.insert(left <= 5);
      ASSERT_EQ(marked.boxes.size(), left <= 5 ? 1u : 0u) << left;
      if (left > 5) continue;
      EXPECT_NEAR(marked.boxes[0].xmin, clip ? 0.0f : -0.1f * static_cast<float>(left), 1e-6);
      EXPECT_NEAR(marked.boxes[0].xmax, 0.8f - 0.1f * static_cast<float>(left), 1e-6);
    }
    EXPECT_EQ(outcomes.size(), 2u);
  }
}

TEST(CropTest, HandlesImpossibleWindowsAndTinyImages) {
  CropOptions impossible;
  impossible.min_aspect_ratio = impossible.max_aspect_ratio = 10.0f;
  impossible.min_area = impossible.max_area = 0.9f;
  CounterRandom random(1, 1);
  EXPECT_FALSE(SampleCropWindow(impossible, 50, 50, {}, &random).has_value());
  for (int i = 0; i < 50; ++i) {
    CounterRandom draws(2, i);
    const auto window = SampleCropWindow(DefaultSsdCrops()[0], 1, 1, {}, &draws);
    if (window.has_value()) {
      EXPECT_EQ(*window, (PixelWindow{0, 0, 1, 1}));
    }
  }
}

TEST(CropTest, DropsBoxesOutsideAndMovesTheOthers) {
  CropOptions options;
  options.overlap_thresh = 0.4f;
  std::vector<Box> boxes = {{0.0f, 0.0f, 0.2f, 0.2f, 1},    // outside
                            {0.4f, 0.4f, 0.8f, 0.8f, 2},    // a quarter of its area inside
                            {0.5f, 0.3f, 0.75f, 0.7f, 3}};  // half inside
  MoveBoxesIntoWindow(options, 100, 100, {50, 50, 50, 50}, &boxes);
  ASSERT_EQ(boxes.size(), 2u);
  EXPECT_EQ(boxes[0].label, 2);
  EXPECT_FLOAT_EQ(boxes[0].ymin, 0.0f);
  EXPECT_NEAR(boxes[0].ymax, 0.6f, 1e-6);
  EXPECT_EQ(boxes[1].label, 3);
  EXPECT_NEAR(boxes[1].xmax, 0.4f, 1e-6);
  options.clip_boxes = false;
  boxes = {{0.4f, 0.4f, 0.8f, 0.8f, 2}};
  MoveBoxesIntoWindow(options, 100, 100, {50, 50, 50, 50}, &boxes);
  EXPECT_NEAR(boxes[0].ymin, -0.2f, 1e-6);
  options.overlap_thresh = 0.0f;
  boxes = {{0.0f, 0.0f, 0.2f, 0.2f, 1}, {0.4f, 0.4f, 0.51f, 0.51f, 2}};
  MoveBoxesIntoWindow(options, 100, 100, {50, 50, 50, 50}, &boxes);
  ASSERT_EQ(boxes.size(), 1u) << "a box of which nothing is left is dropped";
  EXPECT_EQ(boxes[0].label, 2);
}

// Edges are rounded when they become shares. A box still covers itself, whatever the image's size.
TEST(CropTest, ABoxWithinTheWindowIsWhollyCovered) {
  for (const PixelWindow image : {PixelWindow{0, 0, 375, 500}, PixelWindow{0, 0, 427, 640}}) {
    CropOptions whole;
    whole.min_object_covered = whole.overlap_thresh = 1.0f;
    whole.min_aspect_ratio = static_cast<float>(image.width) / static_cast<float>(image.height);
    whole.max_aspect_ratio = whole.min_aspect_ratio;
    whole.min_area = whole.max_area = 1.0f;
    for (int i = 0; i < 225; ++i) {
      const Marked marked(image.height, image.width, {i, 2 * i, 150, 50});
      CounterRandom random(13, i);
      ASSERT_EQ(SampleCropWindow(whole, image.height, image.width, marked.boxes, &random), image);
      std::vector<Box> boxes = marked.boxes;
      MoveBoxesIntoWindow(whole, image.height, image.width, image, &boxes);
      ASSERT_EQ(boxes.size(), 1u) << i;
    }
  }
}

TEST(ColourTest, FollowsTheFormulasOnSingleColours) {
  std::vector<float> red = {1.0f, 0.0f, 0.0f};
  AdjustHue(1.0f / 3.0f, &red);
  EXPECT_NEAR(red[0], 0.0f, 1e-5);
  EXPECT_NEAR(red[1], 1.0f, 1e-5);
  std::vector<float> orange = {0.8f, 0.4f, 0.2f};
  const std::vector<float> before = orange;
  AdjustHue(0.37f, &orange);
  AdjustHue(-0.37f, &orange);
  for (int c = 0; c < 3; ++c) EXPECT_NEAR(orange[c], before[c], 1e-5);
  AdjustSaturation(0.0f, &orange);
  for (int c = 0; c < 3; ++c) EXPECT_NEAR(orange[c], 0.8f, 1e-5);
  std::vector<float> half = {0.8f, 0.4f, 0.2f};
  AdjustSaturation(0.5f, &half);  // the saturation falls from 0.75 to 0.375
  EXPECT_NEAR(half[2], 0.8f * (1 - 0.375f), 1e-5);
  std::vector<float> pair = {0.2f, 0.6f};
  AdjustContrast(0.5f, 1, &pair);
  EXPECT_NEAR(pair[0], 0.3f, 1e-6);
  EXPECT_NEAR(pair[1], 0.5f, 1e-6);
  std::vector<float> grey = {100.0f, 50.0f, 200.0f};
  MakeGrey(&grey);
  EXPECT_NEAR(grey[0], 0.2989f * 100 + 0.5870f * 50 + 0.1140f * 200, 1e-3);
  EXPECT_EQ(grey[0], grey[2]);
}

TEST(ColourTest, StepsKeepTheRangeAndTheBoxes) {
  for (const char* text :
       {"random_pixel_value_scale {}", "random_adjust_brightness { max_delta: 0.9 }",
        "random_adjust_contrast {}", "random_adjust_hue {}", "random_adjust_saturation {}",
        "random_distort_color {}", "random_distort_color { color_ordering: 1 }",
        "random_rgb_to_gray { probability: 1 }", "rgb_to_gray {}"}) {
    SCOPED_TRACE(text);
    const auto step = Make(text);
    bool changed = false;
    for (int i = 0; i < 20; ++i) {
      Marked marked(12, 9, {2, 2, 5, 5});
      CounterRandom random(5, i);
      step->Apply(&random, &marked.image, &marked.boxes);
      const PixelView view = marked.image.View();
      ASSERT_NE(view.floats, nullptr);
      for (int k = 0; k < 12 * 9 * 3; ++k) {
        ASSERT_GE(view.floats[k], 0.0f);
        ASSERT_LE(view.floats[k], 255.0f);
      }
      const float* const mark = view.floats + 3 * (3 * 9 + 3);
      for (int c = 0; c < 3; ++c) changed = changed || std::abs(mark[c] - 200 - 10 * c) > 0.5f;
      EXPECT_EQ(marked.boxes.size(), 1u);
    }
    EXPECT_TRUE(changed);
  }
}

// The four changes of random_distort_color, computed in double on pixels of three values from 0 to
// 255. Hue and saturation follow the formulas with sectors of the colour circle.
class DistortionOracle {
 public:
  explicit DistortionOracle(std::vector<double> values) : values_(std::move(values)) {}
  const std::vector<double>& values() const { return values_; }

  void Brighten(double delta) {
    for (double& value : values_) value += 255.0 * delta;
    Clip();
  }
  void Contrast(double factor) {
    for (size_t c = 0; c < 3; ++c) {
      double sum = 0.0;
      for (size_t i = c; i < values_.size(); i += 3) sum += values_[i];
      const double mean = sum / (static_cast<double>(values_.size()) / 3.0);
      for (size_t i = c; i < values_.size(); i += 3) {
        values_[i] = mean + factor * (values_[i] - mean);
      }
    }
    Clip();
  }
  void Saturate(double factor) { ChangeHsv(factor, 0.0); }
  void TurnHue(double delta) { ChangeHsv(1.0, delta); }  // by a share of the circle

 private:
  void Clip() {
    for (double& value : values_) value = std::min(255.0, std::max(0.0, value));
  }
  void ChangeHsv(double factor, double delta) {
    for (size_t i = 0; i < values_.size(); i += 3) {
      double* const rgb = &values_[i];
      const double high = std::max(rgb[0], std::max(rgb[1], rgb[2]));
      const double range = high - std::min(rgb[0], std::min(rgb[1], rgb[2]));
      if (range == 0.0) continue;
      const int top = rgb[0] == high ? 0 : rgb[1] == high ? 1 : 2;
      double sixths = 2.0 * top + (rgb[(top + 1) % 3] - rgb[(top + 2) % 3]) / range;
      sixths = std::fmod(sixths + 6.0 * delta + 12.0, 6.0);
      const double saturation = std::min(1.0, factor * range / high);
      const int sector = static_cast<int>(sixths);
      const double part = sixths - sector;
      const double p = high * (1 - saturation), q = high * (1 - saturation * part),
                   t = high * (1 - saturation * (1 - part));
      const double sectors[6][3] = {{high, t, p}, {q, high, p}, {p, high, t},
                                    {p, q, high}, {t, p, high}, {high, p, q}};
      std::copy(sectors[sector], sectors[sector] + 3, rgb);
    }
    Clip();
  }

  std::vector<double> values_;
};

// TensorFlow clips after each of the four changes. The brightest and the darkest colours tell that
// from a clip at the end.
TEST(ColourTest, DistortColorClipsAfterEachChange) {
  const std::vector<uint8_t> pixels = {250, 240, 20, 5,   0,  30,  255, 3,  128,
                                       90,  140, 60, 245, 10, 235, 1,   35, 254};
  for (const int order : {0, 1}) {
    const auto step =
        Make("random_distort_color { color_ordering: " + std::to_string(order) + " }");
    for (int i = 0; i < 40; ++i) {
      SCOPED_TRACE(i);
      Image drawn;
      drawn.height = 2;
      drawn.width = 3;
      drawn.channels = 3;
      drawn.pixels = pixels;
      EditableImage image;
      image.Take(&drawn);
      std::vector<Box> boxes;
      CounterRandom random(9, i);
      step->Apply(&random, &image, &boxes);
      CounterRandom draws(9, i);
      const auto draw = [&draws](double low, double high) {
        return low + draws.NextFloat() * (high - low);
      };
      DistortionOracle oracle({pixels.begin(), pixels.end()});
      oracle.Brighten(draw(-32.0 / 255.0, 32.0 / 255.0));
      if (order == 1) oracle.Contrast(draw(0.5, 1.5));
      oracle.Saturate(draw(0.5, 1.5));
      oracle.TurnHue(draw(-0.2, 0.2));
      if (order == 0) oracle.Contrast(draw(0.5, 1.5));
      for (size_t k = 0; k < pixels.size(); ++k) {
        EXPECT_NEAR(image.View().floats[k], oracle.values()[k], 0.01) << k;
      }
    }
  }
}

TEST(ColourTest, GreyImagesHaveNoHue) {
  Image drawn;
  drawn.height = drawn.width = 2;
  drawn.channels = 1;
  drawn.pixels = {0, 100, 200, 255};
  EditableImage image;
  image.Take(&drawn);
  std::vector<Box> boxes;
  CounterRandom random(1, 1);
  Make("random_adjust_hue { max_delta: 0.5 }")->Apply(&random, &image, &boxes);
  EXPECT_NEAR(image.View().floats[2], 200.0f, 1e-3);
}

}  // namespace
}  // namespace pushpull
