#include "worker/data/scene_source.h"

#include <algorithm>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/data/data_test_util.h"
#include "worker/data/synthetic_source.h"

namespace pushpull {
namespace {

std::unique_ptr<ImageSource> Make(const SceneOptions& options, int classes = 5) {
  return std::make_unique<SceneSource>(options, MakeShapeGlyphs(classes));
}

TEST(SceneSourceTest, BoxesLieInTheImageAndDoNotOverlap) {
  const auto source = Make({.num_examples = 100, .max_objects = 12});
  std::set<size_t> counts;
  std::set<int> labels;
  Example example;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(source->Get(i, &example).ok());
    ASSERT_EQ(example.image.pixels.size(), 160u * 160u * 3u);
    counts.insert(example.boxes.size());
    for (size_t a = 0; a < example.boxes.size(); ++a) {
      const Box& box = example.boxes[a];
      labels.insert(box.label);
      EXPECT_TRUE(0 <= box.ymin && box.ymin < box.ymax && box.ymax <= 1);
      EXPECT_TRUE(0 <= box.xmin && box.xmin < box.xmax && box.xmax <= 1);
      for (size_t b = 0; b < a; ++b) {
        const Box& other = example.boxes[b];
        EXPECT_FALSE(std::min(box.ymax, other.ymax) > std::max(box.ymin, other.ymin) &&
                     std::min(box.xmax, other.xmax) > std::max(box.xmin, other.xmin));
      }
    }
  }
  EXPECT_EQ(labels, (std::set<int>{0, 1, 2, 3, 4}));
  EXPECT_GE(*counts.rbegin(), 8u);
  EXPECT_GE(*counts.begin(), 1u);
}

// The object differs from the background exactly inside of its box.
TEST(SceneSourceTest, BoxesFitTheObjects) {
  const auto source = Make({.num_examples = 30, .num_channels = 1, .max_objects = 1});
  Example example;
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(source->Get(i, &example).ok());
    ASSERT_EQ(example.boxes.size(), 1u);
    const Box& box = example.boxes[0];
    const int background = example.image.pixels[0];
    int top = 160, left = 160, bottom = 0, right = 0;
    for (int y = 0; y < 160; ++y) {
      for (int x = 0; x < 160; ++x) {
        if (std::abs(example.image.pixels[y * 160 + x] - background) < 45) continue;
        top = std::min(top, y);
        left = std::min(left, x);
        bottom = std::max(bottom, y + 1);
        right = std::max(right, x + 1);
      }
    }
    EXPECT_NEAR(box.ymin * 160, top, 1.01) << i;
    EXPECT_NEAR(box.xmin * 160, left, 1.01) << i;
    EXPECT_NEAR(box.ymax * 160, bottom, 1.01) << i;
    EXPECT_NEAR(box.xmax * 160, right, 1.01) << i;
  }
}

TEST(SceneSourceTest, ExamplesAreAPureFunctionOfSeedAndIndex) {
  const auto a = Make({.seed = 3});
  const auto b = Make({.seed = 3});
  const auto c = Make({.seed = 4});
  Example first, again, other;
  ASSERT_TRUE(a->Get(9, &first).ok());
  ASSERT_TRUE(b->Get(8, &again).ok());
  ASSERT_TRUE(b->Get(9, &again).ok());
  ASSERT_TRUE(c->Get(9, &other).ok());
  EXPECT_EQ(first.image.pixels, again.image.pixels);
  EXPECT_NE(first.image.pixels, other.image.pixels);
}

TEST(SceneSourceTest, ClassesAreNamedAfterTheirGlyphs) {
  const auto source = Make({}, 2);
  EXPECT_EQ(source->class_names(), (std::vector<std::string>{"disc", "square"}));
}

}  // namespace
}  // namespace pushpull
