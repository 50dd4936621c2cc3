#include "worker/data/image_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/test_folder.h"
#include "tests/testkit/warning_sink.h"
#include "tests/worker/data/varied_source.h"
#include "worker/data/preprocessor.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kNumExamples = 40;

absl::Status Prepare(FileSystem& files, const ImageSource& source, const ImageCacheOptions& options,
                     const ImageCacheHooks& hooks = {}, int threads = 3) {
  ThreadPool pool(threads);
  SteadyClock clock;
  return PrepareImageCache(files, source, options, &pool, &clock, hooks);
}

// Opens a cache of examples like those of `source`.
absl::StatusOr<std::unique_ptr<ImageSource>> Open(FileSystem& files, const VariedSource& source,
                                                  const ImageCacheOptions& options) {
  auto own = std::make_unique<VariedSource>(source.size());
  own->change = source.change;
  return OpenImageCache(files, std::move(own), options);
}

void ExpectFits(FileSystem& files, const VariedSource& source, const ImageCacheOptions& options) {
  const auto cached = Open(files, source, options);
  ASSERT_TRUE(cached.ok()) << cached.status();
  ExpectSameExamples(**cached, source);
}

// A file system in memory with an existing folder "/d".
struct InMemory {
  InMemory() { EXPECT_EQ(files.MakeDirectory("/d"), absl::OkStatus()); }
  MemoryFileSystem files;
  const ImageCacheOptions options{"/d", 0};
};

TEST(ImageCache, ReturnsTheExamplesOfTheSource) {
  const TestFolder folder;
  PosixFileSystem files;
  const ImageCacheOptions options{folder.path() + "/new/folder", 0};
  for (const int64_t size : {int64_t{1}, int64_t{2}, int64_t{17}, kNumExamples}) {
    const VariedSource source(size);
    ASSERT_EQ(Prepare(files, source, options), absl::OkStatus());
    const auto cached = Open(files, source, options);
    ASSERT_TRUE(cached.ok()) << cached.status();
    ExpectSameExamples(**cached, source);
    EXPECT_EQ((*cached)->num_classes(), source.num_classes());
    EXPECT_EQ((*cached)->class_names(), source.class_names());
    EXPECT_THAT((*cached)->describe(),
                AllOf(HasSubstr("image cache " + ImageCachePath(source, options)),
                      HasSubstr(source.describe())));
    ThreadPool pool(2);
    EXPECT_EQ((*cached)->Check(&pool, NeverStopped), absl::OkStatus());
  }
}

TEST(ImageCache, IsBuiltOnceAndThenOnlyChecked) {
  InMemory in;
  const VariedSource source(kNumExamples);
  ASSERT_EQ(Prepare(in.files, source, in.options), absl::OkStatus());
  EXPECT_THAT(*in.files.List("/d"),
              ElementsAre(FileNameOf(ImageCachePath(source, in.options)),
                          FileNameOf(ImageCachePath(source, in.options) + ".lock")));
  source.num_gets = 0;
  ASSERT_EQ(Prepare(in.files, source, in.options), absl::OkStatus());
  EXPECT_EQ(source.num_gets, 16);
}

TEST(ImageCache, NamesDependOnTheData) {
  const VariedSource source(3);
  const VariedSource larger(4);
  const FakeSource other(3, 2, 2, 3, VariedSource::kNumClasses);
  const std::string path = ImageCachePath(source, {"/d", 0});
  EXPECT_THAT(path, testing::MatchesRegex("/d/images-[0-9a-f]+\\.cache"));
  EXPECT_EQ(path, ImageCachePath(VariedSource(3), {"/d", 0}));
  EXPECT_NE(path, ImageCachePath(larger, {"/d", 0}));
  EXPECT_NE(path, ImageCachePath(other, {"/d", 0}));
  EXPECT_NE(path, ImageCachePath(source, {"/d", 100}));
}

TEST(ImageCache, ScalesLargeImagesDownAsThePreprocessorDoes) {
  InMemory in;
  const ImageCacheOptions options{"/d", 6};
  const VariedSource source(kNumExamples);  // up to 9 x 6
  ASSERT_EQ(Prepare(in.files, source, options), absl::OkStatus());
  const auto cached = Open(in.files, source, options);
  ASSERT_TRUE(cached.ok()) << cached.status();
  int num_scaled = 0;
  for (int64_t i = 0; i < kNumExamples; ++i) {
    Example stored;
    Example expected;
    ASSERT_EQ((*cached)->Get(i, &stored), absl::OkStatus());
    ASSERT_EQ(source.Get(i, &expected), absl::OkStatus());
    const Image original = expected.image;
    if (original.height > 6) {  // all images are higher than wide
      Image& image = expected.image;
      image.height = 6;
      image.width = static_cast<int>(std::nearbyint(original.width * 6.0 / original.height));
      image.pixels.resize(6 * image.width * image.channels);
      Preprocessor({6, image.width, image.channels})
          .RunToBytes(ViewPixels(original), Shift{}, image.pixels.data());
      ++num_scaled;
    }
    ExpectSameExample(stored, expected);
  }
  EXPECT_GT(num_scaled, 10);
  EXPECT_LT(num_scaled, kNumExamples);
}

TEST(ImageCache, RebuildsADamagedFileAtTheStart) {
  InMemory in;
  const VariedSource source(kNumExamples);
  const std::string path = ImageCachePath(source, in.options);
  ASSERT_EQ(Prepare(in.files, source, in.options), absl::OkStatus());
  const std::string whole = *ReadWholeFile(in.files, path);
  for (const size_t place : {size_t{3}, size_t{20}, size_t{150}, size_t{1000}, whole.size() - 200,
                             whole.size() - 80, whole.size() - 1}) {
    std::string flipped = whole;
    flipped[place] = static_cast<char>(flipped[place] ^ 4);
    for (const std::string& bad : {whole.substr(0, place), flipped, std::string("text")}) {
      in.files.Corrupt(path, bad);
      source.num_gets = 0;
      ASSERT_EQ(Prepare(in.files, source, in.options), absl::OkStatus());
      EXPECT_GE(source.num_gets, kNumExamples) << "the cache was not built again";
      EXPECT_EQ(ReadWholeFile(in.files, path)->size(), whole.size());
      ExpectFits(in.files, source, in.options);
    }
  }
}

TEST(ImageCache, LaterDamageNamesFileAndImage) {
  const TestFolder folder;
  PosixFileSystem files;
  const ImageCacheOptions options{folder.path(), 0};
  const VariedSource source(kNumExamples);
  ASSERT_EQ(Prepare(files, source, options, {}, 1), absl::OkStatus());
  const std::string path = ImageCachePath(source, options);
  const auto cached = Open(files, source, options);
  ASSERT_TRUE(cached.ok()) << cached.status();
  // Damages the file in place, as a failing disk would. It was written by one thread, so its images
  // are in order.
  std::filesystem::resize_file(path, 500);
  Example example;
  EXPECT_EQ((*cached)->Get(0, &example), absl::OkStatus());
  const absl::Status status = (*cached)->Get(kNumExamples - 1, &example);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(path), HasSubstr("image 39 "), HasSubstr("start the worker again")));
  ThreadPool pool(2);
  const absl::Status checked = (*cached)->Check(&pool, NeverStopped);
  EXPECT_EQ(checked.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(IsPassing(checked)) << checked;
  EXPECT_THAT(std::string(checked.message()),
              AllOf(HasSubstr(path), HasSubstr(" more of 40 images")));
  EXPECT_EQ(Open(files, source, options).status().code(), absl::StatusCode::kDataLoss);
}

// The message says that the worker should be started again, and so must its exit code.
TEST(ImageCache, ErrorsOfTheCacheMayPassButNotThoseOfTheImages) {
  InMemory in;
  const VariedSource source(kNumExamples);
  const std::string path = ImageCachePath(source, in.options);
  const absl::Status missing = Open(in.files, source, in.options).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(IsPassing(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr("start the worker again"));

  ASSERT_EQ(Prepare(in.files, source, in.options), absl::OkStatus());
  FailingReads files(&in.files);
  const auto cached = Open(files, source, in.options);
  ASSERT_TRUE(cached.ok()) << cached.status();
  files.Fail(FailingReads::What::kRead, path, absl::UnavailableError("no answer"), 1);
  Example example;
  const absl::Status unread = (*cached)->Get(7, &example);
  EXPECT_EQ(unread.code(), absl::StatusCode::kUnavailable) << "a read error is no damage";
  EXPECT_TRUE(IsPassing(unread)) << unread;
  EXPECT_THAT(std::string(unread.message()),
              AllOf(HasSubstr(path + ": image 7 cannot be read: no answer"),
                    HasSubstr("start the worker again")));

  VariedSource changed(kNumExamples);
  changed.change = [](Example* decoded) { ++decoded->label; };
  const absl::Status other = Open(in.files, changed, in.options).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(IsPassing(other)) << other;

  auto bad = std::make_unique<VariedSource>(kNumExamples);
  bad->first_bad = 0;
  const absl::Status image = OpenImageCache(in.files, std::move(bad), in.options).status();
  EXPECT_FALSE(image.ok());
  EXPECT_FALSE(IsPassing(image)) << image;
  EXPECT_THAT(std::string(image.message()), Not(HasSubstr("start the worker again")));
  in.files.Corrupt(path, "text");
  const absl::Status damaged = Open(in.files, source, in.options).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(IsPassing(damaged)) << damaged;
}

TEST(ImageCache, RebuildsWhenTheDataHaveChanged) {
  const std::vector<std::pair<std::string, std::function<void(Example*)>>> changes = {
      {"pixels", [](Example* e) { e->image.pixels.back() ^= 1; }},
      {"there and now", [](Example* e) { e->image = MakeImage(2, 2, 3); }},
      {"label", [](Example* e) { e->label = (e->label + 1) % VariedSource::kNumClasses; }},
      {"boxes",
       [](Example* e) {
         for (Box& box : e->boxes) box.is_crowd = !box.is_crowd;
       }},
      {"boxes",
       [](Example* e) {
         for (Box& box : e->boxes) box.is_group_of = !box.is_group_of;
       }},
      {"boxes", [](Example* e) { e->boxes.emplace_back(); }},
  };
  for (const auto& [what, change] : changes) {
    SCOPED_TRACE(what);
    InMemory in;
    ASSERT_EQ(Prepare(in.files, VariedSource(kNumExamples), in.options), absl::OkStatus());
    VariedSource changed(kNumExamples);
    changed.change = change;
    const absl::Status status = Open(in.files, changed, in.options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(what), HasSubstr("image "), HasSubstr("the data have changed"),
                      HasSubstr("start the worker again")));
    ASSERT_EQ(Prepare(in.files, changed, in.options), absl::OkStatus());
    ExpectFits(in.files, changed, in.options);
  }
}

TEST(ImageCache, OnlyOneOfTwoProcessesBuilds) {
  const TestFolder folder;
  PosixFileSystem files;
  const ImageCacheOptions options{folder.path(), 0};
  absl::Notification building;
  absl::Notification second_waits;
  VariedSource first(kNumExamples);
  std::atomic<int64_t> reads{0};
  first.on_get = [&](int64_t) {
    if (reads.fetch_add(1) != kNumExamples) return;  // the estimate is over, the build begins
    building.Notify();
    second_waits.WaitForNotification();
  };
  std::thread builder([&] { EXPECT_EQ(Prepare(files, first, options, {}, 1), absl::OkStatus()); });
  building.WaitForNotification();
  const VariedSource second(kNumExamples);
  ImageCacheHooks hooks;
  hooks.on_wait = [&](const std::string& text) {
    EXPECT_THAT(text, AllOf(HasSubstr("another process"), HasSubstr(folder.path())));
    if (!second_waits.HasBeenNotified()) second_waits.Notify();
  };
  EXPECT_EQ(Prepare(files, second, options, hooks), absl::OkStatus());
  builder.join();
  EXPECT_TRUE(second_waits.HasBeenNotified());
  EXPECT_EQ(second.num_gets, 16);  // only checked, not built
  ExpectFits(files, second, options);
}

TEST(ImageCache, AReaderKeepsItsFileWhenTheCacheIsReplaced) {
  const TestFolder folder;
  PosixFileSystem files;
  const ImageCacheOptions options{folder.path(), 0};
  const VariedSource source(kNumExamples);
  ASSERT_EQ(Prepare(files, source, options), absl::OkStatus());
  const auto cached = Open(files, source, options);
  ASSERT_TRUE(cached.ok()) << cached.status();
  VariedSource changed(kNumExamples);
  changed.change = [](Example* e) { e->image = MakeImage(1, 1, 1); };
  ASSERT_EQ(Prepare(files, changed, options), absl::OkStatus());
  ExpectSameExamples(**cached, source);
  ExpectFits(files, changed, options);
}

TEST(ImageCache, ReportsASmallDiskBeforeWriting) {
  InMemory in;
  in.files.SetFreeBytes(1000);
  const VariedSource source(kNumExamples);
  const absl::Status status = Prepare(in.files, source, in.options);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("about 0.0 MB are needed for 40 images"), HasSubstr("0.0 MB are free"),
            HasSubstr("--image_cache_dir"), HasSubstr("--image_cache_max_side")));
  EXPECT_THAT(*in.files.List("/d"), ElementsAre(HasSubstr(".lock")));
}

TEST(ImageCache, NamesTheOtherCachesIfTheDiskHasNoRoom) {
  InMemory in;
  const VariedSource earlier(kNumExamples - 1), source(kNumExamples);
  ASSERT_EQ(Prepare(in.files, earlier, in.options), absl::OkStatus());
  in.files.SetFreeBytes(1000);
  const absl::Status status = Prepare(in.files, source, in.options);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("can be removed if no worker uses them: " +
                              FileNameOf(ImageCachePath(earlier, in.options)) + " (0.0 MB); make"),
                    Not(HasSubstr(".lock"))));
}

TEST(ImageCache, IsKeptIfAnImageCannotBeReadAtTheMoment) {
  InMemory in;
  const VariedSource source(kNumExamples);
  ASSERT_EQ(Prepare(in.files, source, in.options), absl::OkStatus());
  in.files.SetFreeBytes(1000);  // another cache would have room only in its place
  VariedSource unreadable(kNumExamples);
  unreadable.first_bad = 0;
  EXPECT_TRUE(absl::IsDataLoss(Prepare(in.files, unreadable, in.options)));
  source.num_gets = 0;
  ASSERT_EQ(Prepare(in.files, source, in.options), absl::OkStatus());
  EXPECT_EQ(source.num_gets, 16) << "the cache is still there";
}

TEST(ImageCache, ReportsADiskThatFillsUpWhileBuilding) {
  InMemory in;
  in.files.SetFault(FileFault{FileFault::Kind::kDiskFull, 20, false});
  const VariedSource source(kNumExamples);
  const absl::Status status = Prepare(in.files, source, in.options);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("are needed"), HasSubstr("no space left"), HasSubstr("make room")));
  EXPECT_THAT(*in.files.List("/d"), ElementsAre(HasSubstr(".lock")));
}

TEST(ImageCache, ReportsFoldersThatCannotBeWritten) {
  const TestFolder folder;
  PosixFileSystem files;
  const VariedSource source(3);
  const std::string file = folder.Write("file", "x");
  const absl::Status status = Prepare(files, source, {file, 0});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(file), HasSubstr("neither a folder nor a link to one")));
  EXPECT_FALSE(Prepare(files, source, {file + "/below", 0}).ok());
  EXPECT_FALSE(Prepare(files, source, {"/proc/none", 0}).ok());
  if (geteuid() == 0) GTEST_SKIP() << "root may write to every folder";
  ASSERT_EQ(chmod(folder.path().c_str(), 0500), 0);
  const absl::Status denied = Prepare(files, source, {folder.path(), 0});
  ASSERT_EQ(chmod(folder.path().c_str(), 0700), 0);
  EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied) << denied;
  EXPECT_THAT(std::string(denied.message()), HasSubstr(folder.path()));
}

// Whichever call fails: Prepare returns the error and leaves no incomplete file, and the next
// attempt succeeds.
TEST(ImageCache, SurvivesAnErrorOfEveryCall) {
  InMemory counted;
  const VariedSource source(5);
  counted.files.SetFault(std::nullopt);
  ASSERT_EQ(Prepare(counted.files, source, counted.options, {}, 1), absl::OkStatus());
  const int64_t calls = counted.files.calls();
  ASSERT_GT(calls, 10);
  for (int64_t call = 0; call < calls; ++call) {
    for (const auto kind :
         {FileFault::Kind::kIoError, FileFault::Kind::kDiskFull, FileFault::Kind::kShortWrite}) {
      InMemory in;
      in.files.SetFault(FileFault{kind, call, false});
      const absl::Status failed = Prepare(in.files, source, in.options, {}, 1);
      EXPECT_EQ(failed.code(), kind == FileFault::Kind::kIoError
                                   ? absl::StatusCode::kInternal
                                   : absl::StatusCode::kResourceExhausted)
          << "call " << call << ": " << failed;
      EXPECT_THAT(*in.files.List("/d"), Each(Not(HasSubstr(".building")))) << "call " << call;
      in.files.SetFault(std::nullopt);
      const auto cached = Open(in.files, source, in.options);
      if (cached.ok()) {
        ExpectSameExamples(**cached, source);
      } else {
        EXPECT_EQ(cached.status().code(), absl::StatusCode::kNotFound) << cached.status();
      }
      ASSERT_EQ(Prepare(in.files, source, in.options, {}, 1), absl::OkStatus());
      ExpectFits(in.files, source, in.options);
    }
  }
}

TEST(ImageCache, SurvivesACrashAtEveryCall) {
  const VariedSource source(5);
  InMemory counted;
  counted.files.SetFault(std::nullopt);
  ASSERT_EQ(Prepare(counted.files, source, counted.options, {}, 1), absl::OkStatus());
  for (int64_t call = 0; call < counted.files.calls(); ++call) {
    for (const auto survival : {Survival::kNothing, Survival::kEverything, Survival::kRandom}) {
      InMemory in;
      ASSERT_EQ(in.files.SyncDirectory("/"), absl::OkStatus());
      in.files.SetFault(FileFault{FileFault::Kind::kCrash, call, true});
      EXPECT_FALSE(Prepare(in.files, source, in.options, {}, 1).ok()) << call;
      in.files.Reboot(survival, static_cast<uint64_t>(call));
      const auto cached = Open(in.files, source, in.options);
      if (cached.ok()) {
        ExpectSameExamples(**cached, source);
      } else {
        EXPECT_EQ(cached.status().code(), absl::StatusCode::kNotFound) << cached.status();
      }
      ASSERT_EQ(Prepare(in.files, source, in.options, {}, 1), absl::OkStatus());
      ExpectFits(in.files, source, in.options);
      if (!cached.ok()) {
        EXPECT_EQ(in.files.List("/d")->size(), 2u) << "the cache and its lock";
      }
    }
  }
}

TEST(ImageCache, NamesUnreadableImages) {
  InMemory in;
  VariedSource source(kNumExamples);
  source.first_bad = 38;
  const absl::Status status = Prepare(in.files, source, in.options);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("2 of 40 images cannot be read"), HasSubstr("example 38 is bad"),
                    HasSubstr("example 39 is bad")));
  EXPECT_THAT(*in.files.List("/d"), ElementsAre(HasSubstr(".lock")));
}

TEST(ImageCache, IsMadeOfDamagedImagesThatDecode) {
  for (const int max_side : {0, 2}) {
    InMemory in;
    VariedSource source(kNumExamples);
    source.change = [](Example* example) { example->image.damage = "d.jpg: damaged"; };
    const WarningSink sink;
    EXPECT_EQ(Prepare(in.files, source, {"/d", max_side}), absl::OkStatus());
    EXPECT_EQ(sink.Count("40 of 40 images are damaged"), 1);
  }
}

TEST(ImageCache, IsNotMadeOfImagesWithoutTheBoxesTheyNeed) {
  InMemory in;
  VariedSource source(kNumExamples);
  source.boxes_place = "the key box";
  source.change = [](Example* example) { example->boxes.clear(); };
  const absl::Status status = Prepare(in.files, source, in.options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no image has a box"));
  EXPECT_THAT(*in.files.List("/d"), ElementsAre(HasSubstr(".lock")));
}

TEST(ImageCache, StopsBetweenImages) {
  InMemory in;
  VariedSource source(kNumExamples);
  std::atomic<bool> stopped{false};
  source.on_get = [&](int64_t) {
    if (source.num_gets == kNumExamples + 5) stopped = true;
  };
  ImageCacheHooks hooks;
  hooks.stopped = [&] { return stopped.load(); };
  EXPECT_EQ(Prepare(in.files, source, in.options, hooks).code(), absl::StatusCode::kCancelled);
  EXPECT_LT(source.num_gets, kNumExamples + 10);
  EXPECT_THAT(*in.files.List("/d"), ElementsAre(HasSubstr(".lock")));
  stopped = false;
  ASSERT_EQ(Prepare(in.files, source, in.options, hooks), absl::OkStatus());
  stopped = true;
  EXPECT_EQ(Prepare(in.files, source, in.options, hooks).code(), absl::StatusCode::kCancelled);
}

// A clock that advances by five seconds with each reading.
class HastyClock final : public Clock {
 public:
  absl::Duration Now() const override { return absl::Seconds(5) * looks_.fetch_add(1); }
  void Sleep(absl::Duration) override {}

 private:
  mutable std::atomic<int> looks_{0};
};

TEST(ImageCache, ReportsItsProgress) {
  InMemory in;
  const VariedSource source(kNumExamples);
  std::vector<std::string> texts;
  ImageCacheHooks hooks;
  hooks.on_wait = [&](const std::string& text) { texts.push_back(text); };
  ThreadPool pool(3);
  HastyClock clock;
  ASSERT_EQ(PrepareImageCache(in.files, source, in.options, &pool, &clock, hooks),
            absl::OkStatus());
  EXPECT_EQ(texts.size(), kNumExamples / 2);
  EXPECT_THAT(texts, Contains(AllOf(HasSubstr("the image cache: "), HasSubstr(" of 40 images, "))));
  texts.clear();
  ASSERT_EQ(PrepareImageCache(in.files, source, in.options, &pool, &clock, hooks),
            absl::OkStatus());
  EXPECT_THAT(texts, Each(HasSubstr("the check of the image cache: ")));
  EXPECT_GT(texts.size(), 10u);
}

}  // namespace
}  // namespace pushpull
