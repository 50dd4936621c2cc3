#include "worker/data/synthetic_source.h"

#include <cmath>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "worker/data/synthetic_shapes.h"
namespace pushpull {
namespace {

std::unique_ptr<ImageSource> Create(const SyntheticOptions& options) {
  return std::make_unique<SyntheticSource>(options);
}

TEST(SyntheticSourceTest, IsAPureFunctionOfSeedAndIndex) {
  SyntheticOptions options;
  const auto a = Create(options);
  options.num_examples = 20000;  // must not change the earlier examples
  const auto b = Create(options);
  options.seed = 2;
  const auto other = Create(options);
  int same_as_other = 0;
  for (const int64_t i : {9999, 0, 17, 0}) {
    Example x, y, z;
    ASSERT_TRUE(a->Get(i, &x).ok());
    ASSERT_TRUE(b->Get(i, &y).ok());
    ASSERT_TRUE(other->Get(i, &z).ok());
    EXPECT_EQ(x.image.pixels, y.image.pixels);
    EXPECT_EQ(x.label, y.label);
    same_as_other += x.image.pixels == z.image.pixels ? 1 : 0;
  }
  EXPECT_EQ(same_as_other, 0);
}

TEST(SyntheticSourceTest, ClassesAreBalancedAndBoxesFit) {
  SyntheticOptions options;
  options.height = 24;
  options.width = 40;
  options.num_classes = kMaxSyntheticClasses;
  const auto source = Create(options);
  std::vector<int> counts(options.num_classes);
  for (int64_t i = 0; i < 2400; ++i) {
    Example example;
    ASSERT_TRUE(source->Get(i, &example).ok());
    ASSERT_EQ(example.image.pixels.size(), 24 * 40 * 3);
    ASSERT_LT(example.label, options.num_classes);
    ++counts[example.label];
    ASSERT_EQ(example.boxes.size(), 1);
    const Box& box = example.boxes[0];
    EXPECT_EQ(box.label, example.label);
    EXPECT_GE(box.ymin, 0);
    EXPECT_GE(box.xmin, 0);
    EXPECT_LE(box.ymax, 1);
    EXPECT_LE(box.xmax, 1);
    // The longer side of every shape is at least half the diameter of its circle.
    const float longer = std::max((box.ymax - box.ymin) * 24, (box.xmax - box.xmin) * 40);
    EXPECT_GE(longer, 5) << SyntheticClassName(example.label);
    EXPECT_GT(box.ymax, box.ymin);
    EXPECT_GT(box.xmax, box.xmin);
  }
  for (int label = 0; label < options.num_classes; ++label) {
    EXPECT_NEAR(counts[label], 200, 60) << SyntheticClassName(label);
  }
}

// A full disc compared with a ring: only the disc has the shape's colour in the middle of its box,
// so the difference between the middle and the image's corners usually tells the two apart.
TEST(SyntheticSourceTest, BoxesLieOnTheShape) {
  SyntheticOptions options;
  options.num_channels = 1;
  options.num_classes = 1;  // discs only
  const auto source = Create(options);
  int found = 0;
  for (int64_t i = 0; i < 200; ++i) {
    Example example;
    ASSERT_TRUE(source->Get(i, &example).ok());
    const Box& box = example.boxes[0];
    const int center_y = static_cast<int>((box.ymin + box.ymax) * 16);
    const int center_x = static_cast<int>((box.xmin + box.xmax) * 16);
    const int corner_y = static_cast<int>(box.ymin * 32);
    const int corner_x = static_cast<int>(box.xmin * 32);
    const int inside = example.image.pixels[center_y * 32 + center_x];
    const int outside = example.image.pixels[corner_y * 32 + corner_x];
    found += std::abs(inside - outside) > 10 ? 1 : 0;
  }
  EXPECT_GE(found, 180);
}

TEST(SyntheticSourceTest, NamesAreDistinct) {
  std::set<std::string> names;
  for (int i = 0; i < kMaxSyntheticClasses; ++i) names.insert(std::string(SyntheticClassName(i)));
  EXPECT_EQ(names.size(), kMaxSyntheticClasses);
}

}  // namespace
}  // namespace pushpull
