// A data set in memory whose examples differ in size, channels, pixels, label and boxes.
#ifndef PUSHPULL_TESTS_WORKER_DATA_VARIED_SOURCE_H_
#define PUSHPULL_TESTS_WORKER_DATA_VARIED_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/testkit/data/data_test_util.h"
#include "worker/data/image_source.h"

namespace pushpull {

class VariedSource final : public ImageSource {
 public:
  static constexpr int kNumClasses = 5;

  explicit VariedSource(int64_t size) : size_(size) {}

  int64_t size() const override { return size_; }
  int num_classes() const override { return kNumClasses; }
  std::string describe() const override { return absl::StrCat("varied: ", size_, " images"); }
  std::string place_of_boxes() const override { return boxes_place; }
  absl::Status Get(int64_t index, Example* example) const override {
    ++num_gets;
    if (on_get) on_get(index);
    if (index >= first_bad) return absl::DataLossError(absl::StrCat("example ", index, " is bad"));
    example->image = MakeImage(static_cast<int>(3 + index % 7), static_cast<int>(2 + index % 5),
                               index % 3 == 1 ? 1 : 3);
    example->label = static_cast<int32_t>(index % kNumClasses);
    example->boxes.clear();
    for (int i = 0; i < index % 4; ++i) {
      Box& box = example->boxes.emplace_back();
      box.ymin = 0.125f * static_cast<float>(i);
      box.xmin = 0.01f * static_cast<float>(index % 50);
      box.ymax = 0.75f;
      box.xmax = 0.9f;
      box.label = static_cast<int32_t>((index + i) % kNumClasses);
      box.weight = 0.5f + static_cast<float>(i);
      box.difficult = i % 2 == 1;
      box.is_crowd = i == 2;
      box.is_group_of = (index + i) % 3 == 0;
    }
    if (change) change(example);
    return absl::OkStatus();
  }
  absl::Status Check(ThreadPool*, StoppedFn) const override { return absl::OkStatus(); }

  mutable std::atomic<int64_t> num_gets{0};
  int64_t first_bad = int64_t{1} << 60;
  std::string boxes_place;
  std::function<void(int64_t)> on_get;
  std::function<void(Example*)> change;  // changes every example without telling the cache

 private:
  const int64_t size_;
};

inline void ExpectSameExample(const Example& a, const Example& b) {
  EXPECT_EQ(a.image.height, b.image.height);
  EXPECT_EQ(a.image.width, b.image.width);
  EXPECT_EQ(a.image.channels, b.image.channels);
  EXPECT_TRUE(a.image.pixels == b.image.pixels);
  EXPECT_EQ(a.label, b.label);
  ASSERT_EQ(a.boxes.size(), b.boxes.size());
  for (size_t i = 0; i < a.boxes.size(); ++i) {
    EXPECT_EQ(a.boxes[i].ymin, b.boxes[i].ymin);
    EXPECT_EQ(a.boxes[i].xmin, b.boxes[i].xmin);
    EXPECT_EQ(a.boxes[i].ymax, b.boxes[i].ymax);
    EXPECT_EQ(a.boxes[i].xmax, b.boxes[i].xmax);
    EXPECT_EQ(a.boxes[i].label, b.boxes[i].label);
    EXPECT_EQ(a.boxes[i].weight, b.boxes[i].weight);
    EXPECT_EQ(a.boxes[i].difficult, b.boxes[i].difficult);
    EXPECT_EQ(a.boxes[i].is_crowd, b.boxes[i].is_crowd);
    EXPECT_EQ(a.boxes[i].is_group_of, b.boxes[i].is_group_of);
  }
}

// Expects the same examples from both.
inline void ExpectSameExamples(const ImageSource& a, const ImageSource& b) {
  ASSERT_EQ(a.size(), b.size());
  Example x;
  Example y;
  for (int64_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("example ", i));
    ASSERT_TRUE(a.Get(i, &x).ok());
    ASSERT_TRUE(b.Get(i, &y).ok());
    ExpectSameExample(x, y);
  }
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_WORKER_DATA_VARIED_SOURCE_H_
