// Tests readers that hold a version for long, and the memory that is detached for them.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "ps_server/store/variable_store.h"
#include "tests/testkit/optimizer_test_util.h"
#include "tests/testkit/store/state_dir_test_util.h"

namespace pushpull {
namespace {

class VariableStoreDetachTest : public StateDirTest, public ::testing::WithParamInterface<bool> {
 protected:
  VariableStoreDetachTest() : StateDirTest(MakeLayout(), MakeRmsProp()) {}

  std::unique_ptr<VariableStore> Open() {
    VariableStoreOptions options = dir_.options();
    if (!GetParam()) options.state_dir = "";
    return StateDirTest::Open(options);
  }
};

TEST_P(VariableStoreDetachTest, ReadersKeepTheirBytesWhileWritesContinue) {
  auto store = Open();
  FillVersion(store.get(), 1, 1, "");
  EXPECT_EQ(std::filesystem::exists(dir_.file()), GetParam());
  std::vector<PinnedVersion> readers;
  for (uint64_t version = 1; version <= 4; ++version) {
    auto pinned = store->Pin(version);
    ASSERT_TRUE(pinned.ok()) << pinned.status();
    readers.push_back(*std::move(pinned));
    if (version > 1) {
      EXPECT_FALSE(store->WaitUntilWritable(absl::ZeroDuration()).ok());
      ASSERT_TRUE(store->DetachReaders().ok());
    }
    EXPECT_TRUE(store->WaitUntilWritable(absl::ZeroDuration()).ok());
    ASSERT_TRUE(ApplyVersion(store.get(), 1, ""));
  }
  EXPECT_EQ(store->newest(), 5u);
  for (const PinnedVersion& reader : readers) EXPECT_EQ(DescribeContents(*store, reader), "");
  const auto newest = store->Pin(*store->newest());
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(DescribeContents(*store, *newest), "");
}

TEST_P(VariableStoreDetachTest, DetachedMemoryIsBounded) {
  auto store = Open();
  FillVersion(store.get(), 1, 1, "");
  std::vector<PinnedVersion> readers;
  absl::Status status;
  while (status.ok()) {
    ASSERT_LT(readers.size(), 20u);
    readers.push_back(*store->Pin(*store->newest()));
    status = store->DetachReaders();
    if (status.ok()) {
      ASSERT_TRUE(ApplyVersion(store.get(), 1, ""));
    }
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_FALSE(store->WaitUntilWritable(absl::ZeroDuration()).ok());
  // When the first reader ends, one more reader can be detached.
  readers.erase(readers.begin());
  EXPECT_TRUE(store->DetachReaders().ok());
  EXPECT_TRUE(ApplyVersion(store.get(), 1, ""));
  for (const PinnedVersion& reader : readers) EXPECT_EQ(DescribeContents(*store, reader), "");
}

TEST_P(VariableStoreDetachTest, AWriteWaitsForAReaderAndThenDetachesIt) {
  auto store = Open();
  FillVersion(store.get(), 1, 1, "");
  ASSERT_TRUE(store->MakeWritable(absl::ZeroDuration(), absl::ZeroDuration()).ok());
  ASSERT_TRUE(ApplyVersion(store.get(), 1, ""));

  // The write waits for a reader that ends in time, so both versions stay held.
  auto slow = store->Pin(1);
  ASSERT_TRUE(slow.ok());
  std::thread ends([owner = std::exchange(slow->owner, nullptr)]() mutable {
    absl::SleepFor(absl::Milliseconds(50));
    owner.reset();
  });
  EXPECT_TRUE(store->MakeWritable(absl::InfiniteDuration(), absl::ZeroDuration()).ok());
  ends.join();
  EXPECT_EQ(store->held().size(), 2u);

  // A reader that does not end is detached after the first wait, however long the last wait may be.
  const auto stopped = store->Pin(1);
  ASSERT_TRUE(stopped.ok());
  EXPECT_TRUE(store->MakeWritable(absl::Milliseconds(1), absl::InfiniteDuration()).ok());
  EXPECT_EQ(store->held().size(), 1u);
  ASSERT_TRUE(ApplyVersion(store.get(), 1, ""));
  EXPECT_EQ(DescribeContents(*store, *stopped), "");
}

TEST_P(VariableStoreDetachTest, AWriteWaitsLongerIfNoReaderCanBeDetached) {
  auto store = Open();
  FillVersion(store.get(), 1, 1, "");
  std::vector<PinnedVersion> readers;
  absl::Status status;
  while (status.ok()) {
    ASSERT_LT(readers.size(), 20u);
    readers.push_back(*store->Pin(*store->newest()));
    ASSERT_TRUE(ApplyVersion(store.get(), 1, "")) << "the other buffer must be free";
    status = store->MakeWritable(absl::Milliseconds(1), absl::Milliseconds(5));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  // An earlier reader ends during the wait, so the reader that blocks the write can be detached.
  std::thread ends([first = std::move(readers.front())]() mutable {
    absl::SleepFor(absl::Milliseconds(50));
    first.owner.reset();
  });
  EXPECT_TRUE(store->MakeWritable(absl::Milliseconds(1), absl::InfiniteDuration()).ok());
  ends.join();
  ASSERT_TRUE(ApplyVersion(store.get(), 1, ""));
  readers.erase(readers.begin());
  for (const PinnedVersion& reader : readers) EXPECT_EQ(DescribeContents(*store, reader), "");
}

// Returns how many bytes this process has mapped.
int64_t MappedBytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

TEST_P(VariableStoreDetachTest, DetachedMemoryIsReused) {
  auto store = Open();
  FillVersion(store.get(), 1, 1, "");
  int64_t before = 0;
  const int kRounds = 300;
  for (int round = -5; round < kRounds; ++round) {
    if (round == 0) before = MappedBytes();
    const auto reader = store->Pin(*store->newest());
    ASSERT_TRUE(reader.ok());
    ASSERT_TRUE(ApplyVersion(store.get(), 1, ""));
    ASSERT_TRUE(store->DetachReaders().ok());
    ASSERT_TRUE(ApplyVersion(store.get(), 1, ""));
    if (round % 50 == 0) {
      EXPECT_EQ(DescribeContents(*store, *reader), "");
    }
  }
  const int64_t state_bytes = store->range().size() * 4;
  EXPECT_LT(MappedBytes() - before, kRounds / 4 * state_bytes);
  const auto newest = store->Pin(*store->newest());
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(DescribeContents(*store, *newest), "");
}

TEST_P(VariableStoreDetachTest, TheNextProcessFindsVersionsWrittenAfterADetach) {
  if (!GetParam()) GTEST_SKIP() << "anonymous memory does not outlive the process";
  {
    auto store = Open();
    FillVersion(store.get(), 1, 1, "");
    ASSERT_TRUE(ApplyVersion(store.get(), 1, ""));
    const auto reader = store->Pin(1);
    ASSERT_TRUE(reader.ok());
    ASSERT_TRUE(store->DetachReaders().ok());
    ASSERT_TRUE(ApplyVersion(store.get(), 1, ""));
    ASSERT_TRUE(ApplyVersion(store.get(), 1, ""));
  }
  auto store = Open();
  EXPECT_EQ(store->fresh_reason(), "");
  ASSERT_EQ(store->newest(), 4u);
  for (uint64_t version : {3, 4}) {
    const auto pinned = store->Pin(version);
    ASSERT_TRUE(pinned.ok()) << pinned.status();
    EXPECT_EQ(DescribeContents(*store, *pinned), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, VariableStoreDetachTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Mapped" : "Anonymous"; });

}  // namespace
}  // namespace pushpull
