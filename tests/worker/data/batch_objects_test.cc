#include "worker/data/batch_objects.h"

#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(BatchObjectsTest, BoxesAreFractionsOfTheInput) {
  Box box;
  box.ymin = 0.2f;
  box.xmin = 0.4f;
  box.ymax = 0.6f;
  box.xmax = 1.0f;
  box.label = 3;
  box.weight = 0.5f;
  BatchObjects objects;
  objects.Assign({{box}, {}, {box, box}}, {{}, {}, {0.5f, 0.25f}});
  ASSERT_EQ(objects.spans()[0].size(), 1u);
  EXPECT_EQ(objects.spans()[1].size(), 0u);
  ASSERT_EQ(objects.spans()[2].size(), 2u);
  EXPECT_FLOAT_EQ(objects.spans()[0][0].box.ymax, 0.6f);
  const LabeledBox& scaled = objects.spans()[2][1];
  EXPECT_FLOAT_EQ(scaled.box.ymin, 0.1f);
  EXPECT_FLOAT_EQ(scaled.box.xmin, 0.1f);
  EXPECT_FLOAT_EQ(scaled.box.ymax, 0.3f);
  EXPECT_FLOAT_EQ(scaled.box.xmax, 0.25f);
  EXPECT_EQ(scaled.label, 3);
  EXPECT_EQ(scaled.weight, 0.5f);
}

}  // namespace
}  // namespace pushpull
