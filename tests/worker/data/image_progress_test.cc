#include "worker/data/image_progress.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/thread_pool.h"
#include "tests/testkit/fake_clock.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

TEST(ImageProgressTest, ReportsEveryTenSeconds) {
  FakeClock clock;
  std::vector<std::string> texts;
  const auto report = [&texts](const std::string& text) { texts.push_back(text); };
  ImageProgress progress("the check of the images", 30, &clock, report);
  ImageProgress endless("the index of the records", 0, &clock, report);
  for (int i = 0; i < 30; ++i) {
    progress.Count();
    clock.Sleep(absl::Seconds(1));
  }
  endless.Count();
  EXPECT_THAT(texts,
              ElementsAre("the check of the images: 10 of 30", "the check of the images: 20 of 30",
                          "the index of the records: 0"));
}

TEST(ImageProgressTest, CountsTheImagesOfSeveralThreads) {
  FakeClock clock;
  std::string text;
  ImageProgress progress("images", 1000, &clock, [&text](const std::string& t) { text = t; });
  ThreadPool pool(4);
  pool.ParallelFor(999, [&](int64_t) { progress.Count(); });
  EXPECT_EQ(text, "");
  clock.Sleep(absl::Seconds(10));
  progress.Count();
  EXPECT_EQ(text, "images: 999 of 1000");
  ImageProgress("silent", 1, &clock, nullptr).Count();
}

}  // namespace
}  // namespace pushpull
