#include "common/wire/shared_memory/slot_ring.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

constexpr RingShape kShape{.slots = 4, .slot_bytes = 64};
constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

class SlotRingTest : public testing::Test {
 protected:
  // Sends this text. Returns the number of the message, or kMost if no slot is free.
  uint64_t Send(const std::string& text) {
    char* const slot = writer_.Reserve(text.size());
    if (slot == nullptr) return kMost;
    std::memcpy(slot, text.data(), text.size());
    return writer_.Publish();
  }
  std::string Receive(uint64_t number, size_t size_bytes) {
    const auto message = reader_.Message(number, size_bytes);
    if (!message.ok()) return std::string(message.status().message());
    std::string text(*message, size_bytes);
    reader_.Release(number);
    return text;
  }
  // Returns the slot that begins at this address. Fails if there is none.
  size_t SlotAt(const char* address) const {
    const ptrdiff_t offset = address - slots_.data();
    EXPECT_GE(offset, 0);
    EXPECT_LT(offset, static_cast<ptrdiff_t>(slots_.size()));
    EXPECT_EQ(offset % kShape.slot_bytes, 0);
    return offset / kShape.slot_bytes;
  }

  RingCounters counters_{};
  std::vector<char> slots_ = std::vector<char>(size_t{kShape.slots} * kShape.slot_bytes);
  RingWriter writer_{&counters_, slots_.data(), kShape};
  RingReader reader_{&counters_, slots_.data(), kShape};
};

TEST_F(SlotRingTest, MessagesAreNumberedInOrderAndArriveWhole) {
  ASSERT_TRUE(writer_.TryBegin());
  for (uint64_t i = 0; i < 3 * kShape.slots; ++i) {
    const std::string text(i * 5, static_cast<char>('a' + i));
    EXPECT_EQ(Send(text), i);
    EXPECT_EQ(Receive(i, text.size()), text);
  }
}

TEST_F(SlotRingTest, AFullRingRefusesMessagesUntilOneIsReleased) {
  ASSERT_TRUE(writer_.TryBegin());
  for (uint64_t i = 0; i < kShape.slots; ++i) EXPECT_EQ(Send(std::string(1, 'a' + i)), i);
  EXPECT_EQ(writer_.Reserve(1), nullptr);
  EXPECT_EQ(Receive(0, 1), "a");
  EXPECT_EQ(Send("e"), 4);
  EXPECT_EQ(writer_.Reserve(1), nullptr) << "one slot was free, not two";
  EXPECT_EQ(Receive(1, 1), "b") << "message 4 must not overwrite message 1";
  EXPECT_EQ(Receive(4, 1), "e");
  for (uint64_t i = 5; i < 5 + kShape.slots; ++i)
    EXPECT_EQ(Send("f"), i) << "all earlier slots are free";
}

TEST_F(SlotRingTest, RefusesAMessageLargerThanASlot) {
  ASSERT_TRUE(writer_.TryBegin());
  EXPECT_EQ(writer_.Reserve(kShape.slot_bytes + 1), nullptr);
  EXPECT_EQ(Send(std::string(kShape.slot_bytes, 'x')), 0) << "the message fills exactly one slot";
  EXPECT_TRUE(absl::StrContains(Receive(0, kShape.slot_bytes + 1), "slots of 64"));
  EXPECT_FALSE(reader_.Message(0, std::numeric_limits<size_t>::max()).ok());
  EXPECT_EQ(Receive(0, kShape.slot_bytes), std::string(kShape.slot_bytes, 'x'));
}

TEST_F(SlotRingTest, AllowsOneTurnAtATime) {
  ASSERT_TRUE(writer_.TryBegin());
  EXPECT_FALSE(writer_.TryBegin());
  writer_.End();
  EXPECT_TRUE(writer_.TryBegin());
}

TEST_F(SlotRingTest, TheNextTurnDiscardsUnreadMessages) {
  ASSERT_TRUE(writer_.TryBegin());
  for (uint64_t i = 0; i < kShape.slots; ++i) Send("old");
  writer_.End();
  ASSERT_TRUE(writer_.TryBegin());
  for (uint64_t i = kShape.slots; i < 2 * kShape.slots; ++i) EXPECT_EQ(Send("new"), i);
  EXPECT_EQ(writer_.Reserve(1), nullptr) << "a turn does not discard its own messages";
  EXPECT_EQ(Receive(kShape.slots, 3), "new") << "the reader follows the jump";
  EXPECT_EQ(Send("n+1"), 2 * kShape.slots);
  EXPECT_FALSE(reader_.Message(1, 3).ok());
}

TEST_F(SlotRingTest, RefusesAMissingMessage) {
  ASSERT_TRUE(writer_.TryBegin());
  EXPECT_TRUE(absl::IsInvalidArgument(reader_.Message(0, 1).status())) << "not published";
  Send("a");
  Send("b");
  EXPECT_TRUE(absl::IsInvalidArgument(reader_.Message(2, 1).status())) << "not published";
  EXPECT_TRUE(absl::IsInvalidArgument(reader_.Message(kMost, 1).status()));
  EXPECT_EQ(Receive(1, 1), "b");
  const absl::Status released = reader_.Message(1, 1).status();
  EXPECT_TRUE(absl::IsInvalidArgument(released)) << released;
  EXPECT_TRUE(absl::StrContains(released.message(), "message 1 is not in shared memory"));
  EXPECT_FALSE(reader_.Message(0, 1).ok()) << "releasing message 1 also released message 0";
}

TEST_F(SlotRingTest, RefusesAnOverwrittenMessage) {
  ASSERT_TRUE(writer_.TryBegin());
  for (uint64_t i = 0; i < kShape.slots; ++i) Send("old");
  writer_.End();
  ASSERT_TRUE(writer_.TryBegin());
  Send("new");
  EXPECT_FALSE(reader_.Message(0, 3).ok()) << "message 4 has its slot";
  EXPECT_EQ(Receive(1, 3), "old");
  EXPECT_EQ(Receive(4, 3), "new");
}

TEST_F(SlotRingTest, ReleasingAnOlderMessageChangesNothing) {
  ASSERT_TRUE(writer_.TryBegin());
  for (uint64_t i = 0; i < 3; ++i) Send("x");
  reader_.Release(2);
  reader_.Release(0);
  EXPECT_FALSE(reader_.Message(1, 1).ok());
  EXPECT_EQ(counters_.released, 3);
}

TEST_F(SlotRingTest, ReleasingMoreThanWasSentReleasesAll) {
  ASSERT_TRUE(writer_.TryBegin());
  for (const uint64_t lie : {uint64_t{1000}, kMost - 1, kMost}) {
    counters_.released = lie;
    for (uint64_t i = 0; i < 3 * kShape.slots; ++i) EXPECT_NE(Send("x"), kMost) << lie;
  }
}

TEST_F(SlotRingTest, FalseCountersNeverGiveAnAddressOutsideTheSlots) {
  const uint64_t lies[] = {0, 1, 3, 4, 5, 1000, kMost / 2, kMost - 4, kMost - 1, kMost};
  ASSERT_TRUE(writer_.TryBegin());
  uint64_t sent = 0;
  for (const uint64_t published : lies) {
    for (const uint64_t released : lies) {
      counters_.published = published;
      counters_.released = released;
      if (const char* const slot = writer_.Reserve(kShape.slot_bytes)) {
        EXPECT_EQ(SlotAt(slot), sent % kShape.slots)
            << "the writer's private count decides the slot";
        EXPECT_EQ(writer_.Publish(), sent++);
        EXPECT_EQ(counters_.published, sent) << "the published count must match the private one";
      }
      counters_.published = published;
      for (const uint64_t number : lies) {
        const auto message = reader_.Message(number, kShape.slot_bytes);
        if (!message.ok()) continue;
        EXPECT_EQ(SlotAt(*message), number % kShape.slots);
      }
    }
  }
  EXPECT_GT(sent, 0);
}

// Bytes differ between messages and between places in a message.
char ByteAt(uint64_t number, size_t i) { return static_cast<char>(number * 31 + i * 7 + i / 256); }

TEST(SlotRingThreadsTest, PassesTenThousandMessagesBetweenThreads) {
  constexpr uint64_t kMessages = 10000;
  constexpr RingShape kRing{.slots = 5, .slot_bytes = 1000};
  RingCounters counters{};
  std::vector<char> slots(size_t{kRing.slots} * kRing.slot_bytes);
  RingWriter writer(&counters, slots.data(), kRing);
  RingReader reader(&counters, slots.data(), kRing);
  // The side channel that announces messages. If one side finds an error, it gives up and the other
  // side follows.
  constexpr absl::Duration kPatience = absl::Seconds(30);
  absl::Mutex mutex;
  std::deque<std::pair<uint64_t, size_t>> told;
  std::atomic<bool> given_up{false};

  std::thread sender([&] {
    for (uint64_t i = 0; i < kMessages; ++i) {
      if (i % 1000 == 0) {
        if (i > 0) {
          // A turn ends when the other side has answered.
          const auto all_read = [&] { return told.empty(); };
          absl::MutexLock lock(&mutex);
          if (!mutex.AwaitWithTimeout(absl::Condition(&all_read), kPatience)) given_up = true;
          writer.End();
        }
        if (!writer.TryBegin()) given_up = true;
      }
      const size_t size_bytes = i * 7919 % (kRing.slot_bytes + 1);
      char* slot = nullptr;
      while (!given_up && (slot = writer.Reserve(size_bytes)) == nullptr) {
        std::this_thread::yield();
      }
      if (given_up) return;
      for (size_t k = 0; k < size_bytes; ++k) slot[k] = ByteAt(i, k);
      const uint64_t number = writer.Publish();
      absl::MutexLock lock(&mutex);
      told.emplace_back(number, size_bytes);
    }
  });
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kMessages; ++i) {
    std::pair<uint64_t, size_t> next;
    {
      const auto there = [&] { return !told.empty(); };
      absl::MutexLock lock(&mutex);
      if (!mutex.AwaitWithTimeout(absl::Condition(&there), kPatience)) {
        given_up = true;
        ADD_FAILURE() << "message " << i << " did not arrive";
        break;
      }
      next = told.front();
    }
    EXPECT_EQ(next.first, i);
    const auto message = reader.Message(next.first, next.second);
    if (message.ok()) {
      for (size_t k = 0; k < next.second; ++k) wrong += (*message)[k] != ByteAt(i, k);
    } else {
      ADD_FAILURE() << message.status();
    }
    reader.Release(next.first);
    absl::MutexLock lock(&mutex);
    told.pop_front();
  }
  sender.join();
  EXPECT_FALSE(given_up);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace pushpull
