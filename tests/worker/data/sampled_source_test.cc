#include "worker/data/sampled_source.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/memory_file_system.h"
#include "tests/worker/data/varied_source.h"
#include "worker/data/image_cache.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

SampledSource Sampled(int64_t size, int64_t n) {
  return SampledSource(std::make_unique<VariedSource>(size), n);
}

TEST(SampledSourceTest, HasTheFirstOfEachNExamples) {
  EXPECT_EQ(Sampled(9, 3).size(), 3);
  EXPECT_EQ(Sampled(10, 3).size(), 4);
  EXPECT_EQ(Sampled(10, 1).size(), 10);
  EXPECT_EQ(Sampled(10, 4000000000).size(), 1);
  const VariedSource all(10);
  const SampledSource sampled = Sampled(10, 4);
  ASSERT_EQ(sampled.size(), 3);
  Example got;
  Example want;
  for (int64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(sampled.Get(i, &got), absl::OkStatus());
    ASSERT_EQ(all.Get(4 * i, &want), absl::OkStatus());
    ExpectSameExample(got, want);
  }
}

TEST(SampledSourceTest, KeepsTheClassesAndDescribesTheChoice) {
  const SampledSource sampled = Sampled(10, 4);
  EXPECT_EQ(sampled.num_classes(), VariedSource::kNumClasses);
  EXPECT_THAT(sampled.class_names(), ElementsAre("1", "2", "3", "4", "5"));
  EXPECT_EQ(sampled.describe(), "1 of 4 examples (3) of varied: 10 images");
}

TEST(SampledSourceTest, ChecksOnlyWhatItReads) {
  for (const auto& [first_bad, is_good] : {std::make_pair(9, true), std::make_pair(8, false)}) {
    auto source = std::make_unique<VariedSource>(12);
    source->first_bad = first_bad;
    absl::Mutex mutex;
    std::vector<int64_t> read;
    source->on_get = [&](int64_t index) {
      absl::MutexLock lock(&mutex);
      read.push_back(index);
    };
    const SampledSource sampled(std::move(source), 4);
    ThreadPool pool(2);
    const absl::Status status = sampled.Check(&pool, NeverStopped);
    EXPECT_EQ(status.ok(), is_good) << status;
    if (!is_good) {
      EXPECT_THAT(
          std::string(status.message()),
          HasSubstr("1 of 3 images cannot be read; repair or remove them:\n  example 8 is"));
    }
    EXPECT_THAT(read, UnorderedElementsAre(0, 4, 8));
  }
}

// A cache of all examples, or of another choice, must not be taken for this one.
TEST(SampledSourceTest, HasAnImageCacheOfItsOwn) {
  MemoryFileSystem files;
  ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
  const ImageCacheOptions options{"/d", 0};
  // Every fourth and every fifth of 12 examples: 3 of each.
  const SampledSource sampled = Sampled(12, 4);
  EXPECT_NE(ImageCachePath(sampled, options), ImageCachePath(VariedSource(12), options));
  EXPECT_NE(ImageCachePath(sampled, options), ImageCachePath(Sampled(12, 5), options));
  EXPECT_EQ(ImageCachePath(sampled, options), ImageCachePath(Sampled(12, 4), options));
  ThreadPool pool(2);
  SteadyClock clock;
  ASSERT_EQ(PrepareImageCache(files, sampled, options, &pool, &clock, {}), absl::OkStatus());
  const auto cached = OpenImageCache(
      files, std::make_unique<SampledSource>(std::make_unique<VariedSource>(12), 4), options);
  ASSERT_TRUE(cached.ok()) << cached.status();
  ExpectSameExamples(**cached, sampled);
}

}  // namespace
}  // namespace pushpull
