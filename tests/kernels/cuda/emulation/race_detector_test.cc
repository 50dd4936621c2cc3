#include "kernels/cuda/emulation/race_detector.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull::emulation {
namespace {

using testing::HasSubstr;

constexpr AccessKind kRead = AccessKind::kRead, kWrite = AccessKind::kWrite;
constexpr AccessKind kAtomic = AccessKind::kAtomic;
constexpr unsigned kWarpSize = RaceDetector::kWarpSize;

class RaceDetectorTest : public testing::Test {
 protected:
  RaceDetectorTest() { detector_.StartBlock(/*shared_bytes=*/256, /*threads=*/128); }

  bool Allows(AccessKind kind, unsigned thread, ptrdiff_t offset = 0, size_t bytes = 4) {
    AccessError error;
    return detector_.Access(kind, thread, offset, bytes, &error);
  }
  std::string Message(AccessKind kind, unsigned thread, ptrdiff_t offset = 0, size_t bytes = 4) {
    AccessError error;
    return detector_.Access(kind, thread, offset, bytes, &error) ? "" : error.Text();
  }

  RaceDetector detector_;
};

TEST_F(RaceDetectorTest, AThreadDoesNotRaceWithItself) {
  for (const AccessKind kind : {kWrite, kRead, kAtomic, kWrite, kAtomic, kRead}) {
    EXPECT_TRUE(Allows(kind, 5));
  }
}

TEST_F(RaceDetectorTest, ReadsAndAtomicOperationsDoNotRaceWithTheirKind) {
  for (unsigned t = 0; t < 128; ++t) EXPECT_TRUE(Allows(kRead, t));
  for (unsigned t = 0; t < 128; ++t) EXPECT_TRUE(Allows(kAtomic, t, 8));
}

TEST_F(RaceDetectorTest, EachPairWithAWriteRaces) {
  for (const unsigned other : {6u, 40u}) {
    for (const auto& [first, second] :
         std::vector<std::pair<AccessKind, AccessKind>>{{kWrite, kWrite},
                                                        {kWrite, kRead},
                                                        {kRead, kWrite},
                                                        {kAtomic, kRead},
                                                        {kRead, kAtomic},
                                                        {kAtomic, kWrite},
                                                        {kWrite, kAtomic}}) {
      detector_.StartBlock(256, 128);
      EXPECT_TRUE(Allows(first, 5));
      EXPECT_FALSE(Allows(second, other));
    }
  }
}

TEST_F(RaceDetectorTest, ABlockBarrierOrdersAllThreads) {
  EXPECT_TRUE(Allows(kWrite, 5));
  detector_.PassBlockBarrier();
  EXPECT_TRUE(Allows(kRead, 6));
  EXPECT_TRUE(Allows(kRead, 40));
  detector_.PassBlockBarrier();
  EXPECT_TRUE(Allows(kWrite, 70));
}

TEST_F(RaceDetectorTest, AWarpBarrierOrdersItsWarpOnly) {
  EXPECT_TRUE(Allows(kWrite, 5));
  detector_.PassWarpBarrier(1);
  EXPECT_FALSE(Allows(kRead, 6)) << "the barrier was another warp's";
  detector_.PassWarpBarrier(0);
  EXPECT_TRUE(Allows(kRead, 6));
  EXPECT_FALSE(Allows(kRead, 40));
}

TEST_F(RaceDetectorTest, AReadBeforeAWarpBarrierStillRacesWithOtherWarps) {
  EXPECT_TRUE(Allows(kRead, 5));
  detector_.PassWarpBarrier(0);
  EXPECT_TRUE(Allows(kWrite, 6)) << "its warp is ordered";
  EXPECT_FALSE(Allows(kWrite, 40));
}

TEST_F(RaceDetectorTest, NumbersBesideEachOtherAreIndependent) {
  for (unsigned t = 0; t < 128; ++t) EXPECT_TRUE(Allows(kWrite, t, 2 * t, 2));
  EXPECT_FALSE(Allows(kRead, 0, 0, 4));
}

TEST_F(RaceDetectorTest, AHalfKeepsWhatWasAccessedWithItsWord) {
  EXPECT_TRUE(Allows(kWrite, 5, 4, 4));
  EXPECT_TRUE(Allows(kRead, 5, 6, 2)) << "splits the word";
  EXPECT_FALSE(Allows(kRead, 6, 4, 2));
  EXPECT_FALSE(Allows(kRead, 6, 6, 2));
  EXPECT_TRUE(Allows(kAtomic, 5, 8, 4));
  EXPECT_TRUE(Allows(kRead, 5, 8, 2));
  EXPECT_FALSE(Allows(kRead, 6, 10, 2));
}

TEST_F(RaceDetectorTest, ABlockDoesNotRaceWithTheOneBefore) {
  EXPECT_TRUE(Allows(kWrite, 5));
  EXPECT_TRUE(Allows(kAtomic, 5, 8));
  detector_.StartBlock(256, 128);
  EXPECT_TRUE(Allows(kWrite, 70));
  EXPECT_TRUE(Allows(kWrite, 70, 8));
}

TEST_F(RaceDetectorTest, AccessesOutsideAreErrors) {
  EXPECT_EQ(Message(kWrite, 33, 252, 8),
            "thread 33 (warp 1) writes shared memory at byte 256, outside of it");
  EXPECT_THAT(Message(kRead, 33, -4), HasSubstr("at byte -4, outside of it"));
  EXPECT_THAT(Message(kRead, 33, 300), HasSubstr("at byte 300, outside of it"));
  EXPECT_TRUE(Allows(kWrite, 33, 252));
}

TEST_F(RaceDetectorTest, MessagesNameTheThreadsAndTheMissingBarrier) {
  EXPECT_TRUE(Allows(kWrite, 5, 128));
  EXPECT_EQ(Message(kRead, 6, 128),
            "race at byte 128 of shared memory: thread 5 (warp 0) writes it and thread 6 (warp 0) "
            "reads it, and neither __syncwarp nor __syncthreads is between them");
  EXPECT_EQ(Message(kAtomic, 70, 128),
            "race at byte 128 of shared memory: thread 5 (warp 0) writes it and thread 70 (warp 2) "
            "atomically changes it, and no __syncthreads is between them");
}

// The rule without any economy: remembers all accesses of the block.
class AllAccesses {
 public:
  explicit AllAccesses(unsigned warps) : warp_epochs_(warps) {}
  void PassBlockBarrier() { ++epoch_; }
  void PassWarpBarrier(unsigned warp) { ++warp_epochs_[warp]; }
  // The threads whose access to this half of a word races with this one.
  std::set<unsigned> Add(AccessKind kind, unsigned thread, ptrdiff_t half) {
    const unsigned warp = thread / kWarpSize;
    std::set<unsigned> conflicts;
    for (const Past& past : accesses_[half]) {
      const bool plain_reads = kind == kRead && past.kind == kRead;
      const bool atomics = kind == kAtomic && past.kind == kAtomic;
      const bool same_warp = past.thread / kWarpSize == warp;
      const bool ordered =
          past.epoch < epoch_ || (same_warp && past.warp_epoch < warp_epochs_[warp]);
      if (past.thread != thread && !plain_reads && !atomics && !ordered) {
        conflicts.insert(past.thread);
      }
    }
    if (conflicts.empty()) accesses_[half].push_back({kind, thread, epoch_, warp_epochs_[warp]});
    return conflicts;
  }

 private:
  struct Past {
    AccessKind kind;
    unsigned thread;
    int epoch, warp_epoch;
  };
  int epoch_ = 0;
  std::vector<int> warp_epochs_;
  std::map<ptrdiff_t, std::vector<Past>> accesses_;
};

TEST_F(RaceDetectorTest, AReadIsKnownOnceTwoThreadsHaveReadTheWord) {
  EXPECT_FALSE(detector_.IsKnownRead(5, 8, 4));
  Allows(kRead, 5, 8);
  EXPECT_FALSE(detector_.IsKnownRead(6, 8, 4));
  Allows(kRead, 6, 8);
  EXPECT_TRUE(detector_.IsKnownRead(7, 8, 4));
  EXPECT_FALSE(detector_.IsKnownRead(40, 8, 4)) << "of another warp";
  EXPECT_FALSE(detector_.IsKnownRead(7, 8, 8)) << "nobody has read the next word";
  EXPECT_FALSE(detector_.IsKnownRead(7, 10, 4)) << "nor its first half";
  detector_.PassWarpBarrier(0);
  EXPECT_FALSE(detector_.IsKnownRead(7, 8, 4)) << "the latest reads may race with other writes";
  for (const ptrdiff_t outside : {-4, 256, 260}) {
    EXPECT_FALSE(detector_.IsKnownRead(7, outside, 4));
  }
}

TEST_F(RaceDetectorTest, AgreesWithTheRuleOnRandomAccesses) {
  std::mt19937 random(1);
  int races = 0, accesses = 0, known = 0;
  for (int block = 0; block < 300; ++block) {
    detector_.StartBlock(256, 128);
    AllAccesses all(4);
    for (int i = 0; i < 200; ++i) {
      const unsigned choice = random() % 20;
      if (choice == 0) {
        detector_.PassBlockBarrier();
        all.PassBlockBarrier();
      } else if (choice < 5) {
        const unsigned warp = random() % 4;
        detector_.PassWarpBarrier(warp);
        all.PassWarpBarrier(warp);
      } else {
        // Few threads, and in most blocks few writes, so that many accesses do not race.
        const unsigned thread = random() % 2 * kWarpSize + random() % 3;
        const auto kind = static_cast<AccessKind>(random() % (1 + block % 3));
        // One to four halves of words; in a third of the blocks only whole words.
        const bool words = block / 3 % 3 == 0;
        const auto first = static_cast<ptrdiff_t>(words ? random() % 3 * 2 : random() % 6);
        const auto halves = static_cast<ptrdiff_t>(words ? 2 : 1 + random() % 4);
        std::set<unsigned> expected;
        ptrdiff_t half = first;
        for (; half < first + halves; ++half) {
          expected = all.Add(kind, thread, half);
          if (!expected.empty()) break;
        }
        ++accesses;
        // As the emulation does: reads that tell nothing new are not noted.
        if (kind == kRead && detector_.IsKnownRead(thread, 2 * first, 2 * halves)) {
          ASSERT_TRUE(expected.empty());
          ++known;
          continue;
        }
        AccessError error;
        ASSERT_EQ(detector_.Access(kind, thread, 2 * first, 2 * halves, &error), expected.empty());
        if (!expected.empty()) {
          ASSERT_EQ(error.kind, AccessError::Kind::kRace);
          ASSERT_EQ(error.offset / 4, half / 2) << "the word";
          ASSERT_EQ(expected.count(error.earlier_thread), 1u);
        }
        races += !expected.empty();
      }
    }
  }
  EXPECT_GT(races, accesses / 20);
  EXPECT_GT(known, accesses / 20);
  EXPECT_GT(accesses - races - known, accesses / 20);
}

}  // namespace
}  // namespace pushpull::emulation
