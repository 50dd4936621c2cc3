#include "common/wire/shared_memory/chunk_exchange.h"

#include <unistd.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

#include "common/base/crc32c.h"
#include "common/model/sharding.h"

namespace pushpull {
namespace {

constexpr int64_t kChunkBytes = Sharding::kChunkBytes;

// Puts a payload of this text into the exchange and returns its description.
std::optional<ps::SharedChunk> Put(SendTurn* turn, const std::string& text) {
  return turn->Put(text.size(), [&](char* slot) { std::memcpy(slot, text.data(), text.size()); });
}

struct Taken {
  std::string text;
  uint32_t crc = 0;
};

absl::StatusOr<Taken> Take(ChunkExchange* exchange, const ps::SharedChunk& chunk) {
  Taken taken;
  const auto crc = exchange->Take(chunk, [&](size_t size_bytes) -> absl::StatusOr<char*> {
    taken.text.resize(size_bytes);
    return taken.text.data();
  });
  if (!crc.ok()) return crc.status();
  taken.crc = *crc;
  return taken;
}

// Both sides of an exchange in one process.
class ChunkExchangeTest : public testing::Test {
 protected:
  void SetUp() override { Open(2 * kChunkBytes); }  // five chunks
  void Open(int64_t shard_bytes) {
    auto server = ChunkExchange::Create(shard_bytes);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    reply_.Clear();
    server_->Describe(&reply_);
    auto worker = ChunkExchange::Attach(reply_);
    ASSERT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
  }

  std::shared_ptr<ChunkExchange> server_;
  std::shared_ptr<ChunkExchange> worker_;
  ps::OpenSharedMemoryReply reply_;
};

TEST_F(ChunkExchangeTest, BothDirectionsWorkAtOnceWithoutMixing) {
  SendTurn pushes(worker_);
  SendTurn pulls(server_);
  std::vector<std::pair<ps::SharedChunk, ps::SharedChunk>> chunks;
  for (int i = 0; i < 5; ++i) {
    const auto pushed = Put(&pushes, std::string(kChunkBytes, static_cast<char>('a' + i)));
    const auto pulled = Put(&pulls, std::string(kChunkBytes, static_cast<char>('A' + i)));
    ASSERT_TRUE(pushed.has_value() && pulled.has_value()) << i;
    chunks.emplace_back(*pushed, *pulled);
  }
  EXPECT_FALSE(Put(&pushes, "x").has_value()) << "there are as many slots as the shard has chunks";
  EXPECT_FALSE(Put(&pulls, "x").has_value());
  for (int i = 0; i < 5; ++i) {
    const auto pushed = Take(server_.get(), chunks[i].first);
    const auto pulled = Take(worker_.get(), chunks[i].second);
    ASSERT_TRUE(pushed.ok() && pulled.ok()) << pushed.status() << pulled.status();
    EXPECT_TRUE(pushed->text == std::string(kChunkBytes, static_cast<char>('a' + i))) << i;
    EXPECT_TRUE(pulled->text == std::string(kChunkBytes, static_cast<char>('A' + i))) << i;
    EXPECT_EQ(pushed->crc, Crc32c(pushed->text));
    EXPECT_EQ(pulled->crc, Crc32c(pulled->text));
  }
  EXPECT_TRUE(Put(&pushes, "x").has_value()) << "the taken chunk has freed its slot";
  EXPECT_TRUE(Put(&pulls, "x").has_value());
}

TEST_F(ChunkExchangeTest, TheTokenDoesNotChange) {
  SendTurn pushes(worker_);
  SendTurn pulls(server_);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Take(server_.get(), *Put(&pushes, "push")).ok());
    EXPECT_TRUE(Take(worker_.get(), *Put(&pulls, "pull")).ok());
  }
  const auto again = ChunkExchange::Attach(reply_);
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST_F(ChunkExchangeTest, SlotsFollowTheSizeOfTheShard) {
  struct Case {
    int64_t shard_bytes;
    uint32_t slots;
    uint32_t slot_bytes;
  };
  for (const Case& c :
       {Case{0, 1, 4096}, Case{4, 1, 4096}, Case{4096, 1, 4096}, Case{4100, 1, 8192},
        Case{kChunkBytes / 8 + 4, 2, kChunkBytes / 8}, Case{kChunkBytes, 4, kChunkBytes / 2},
        Case{kChunkBytes + 4, 5, kChunkBytes / 2}, Case{12 * kChunkBytes, 15, kChunkBytes},
        Case{13 * kChunkBytes, 16, kChunkBytes}, Case{14 * kChunkBytes, 16, kChunkBytes},
        Case{int64_t{1} << 40, 16, kChunkBytes}}) {
    Open(c.shard_bytes);
    EXPECT_EQ(reply_.slots(), c.slots) << c.shard_bytes;
    EXPECT_EQ(reply_.slot_bytes(), c.slot_bytes) << c.shard_bytes;
    EXPECT_EQ(reply_.pid(), getpid());
    EXPECT_EQ(reply_.token(), server_->token());
    EXPECT_NE(reply_.token(), 0);
    // The last slot has the full size.
    SendTurn pushes(worker_);
    const std::string text(c.slot_bytes, 'x');
    for (uint32_t i = 0; i < c.slots; ++i) {
      const auto chunk = Put(&pushes, text);
      ASSERT_TRUE(chunk.has_value());
      EXPECT_EQ(chunk->size_bytes(), c.slot_bytes);
      EXPECT_TRUE(Take(server_.get(), *chunk)->text == text);
    }
    EXPECT_FALSE(Put(&pushes, text + "x").has_value()) << "too large";
  }
}

TEST_F(ChunkExchangeTest, TokensDiffer) {
  const uint64_t first = reply_.token();
  Open(5 * kChunkBytes);
  EXPECT_NE(reply_.token(), first);
}

TEST_F(ChunkExchangeTest, RefusesADescriptionThatIsNotTheServers) {
  const std::vector<std::pair<std::string, std::function<void(ps::OpenSharedMemoryReply*)>>> cases{
      {"not this server's", [](auto* r) { r->set_token(r->token() ^ 1); }},
      {"0 slots", [](auto* r) { r->set_slots(0); }},
      {"17 slots", [](auto* r) { r->set_slots(17); }},
      {"4294967295 slots", [](auto* r) { r->set_slots(std::numeric_limits<uint32_t>::max()); }},
      {"of 0 bytes", [](auto* r) { r->set_slot_bytes(0); }},
      {"of 1048577 bytes", [](auto* r) { r->set_slot_bytes(kChunkBytes + 1); }},
      {"use binaries of one build", [](auto* r) { r->set_token(0); }},
      {"expected 8392704", [](auto* r) { r->set_slots(4); }},
      {"cannot use the shared memory", [](auto* r) { r->set_file_descriptor(-1); }},
      {"cannot use the shared memory", [](auto* r) { r->set_pid(-5); }},
  };
  for (const auto& [why, change] : cases) {
    ps::OpenSharedMemoryReply reply = reply_;
    change(&reply);
    const absl::Status status = ChunkExchange::Attach(reply).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << why << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), why)) << why << ": " << status;
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(ChunkExchange::Attach({}).status()));
}

TEST_F(ChunkExchangeTest, RefusesMemoryWithoutAToken) {
  const auto memory = SealedMemory::Create(4096 + 2 * 4096);
  ASSERT_TRUE(memory.ok()) << memory.status();
  ps::OpenSharedMemoryReply reply;
  reply.set_pid(getpid());
  reply.set_file_descriptor((*memory)->descriptor());
  reply.set_slots(1);
  reply.set_slot_bytes(4096);
  EXPECT_TRUE(absl::IsFailedPrecondition(ChunkExchange::Attach(reply).status()));
}

TEST_F(ChunkExchangeTest, RefusesAChunkWithAnotherToken) {
  SendTurn pushes(worker_);
  ps::SharedChunk chunk = *Put(&pushes, "gradient");
  chunk.set_token(chunk.token() + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(Take(server_.get(), chunk).status()));
  chunk.set_token(chunk.token() - 1);
  EXPECT_EQ(Take(server_.get(), chunk)->text, "gradient");
}

TEST_F(ChunkExchangeTest, RefusesAMissingChunkBeforeAllocatingMemory) {
  SendTurn pushes(worker_);
  ps::SharedChunk chunk = *Put(&pushes, "gradient");
  const auto never = [](size_t) -> absl::StatusOr<char*> {
    ADD_FAILURE() << "the exchange asked for memory";
    return absl::InternalError("");
  };
  chunk.set_number(1);
  EXPECT_TRUE(absl::IsInvalidArgument(server_->Take(chunk, never).status()));
  chunk.set_number(0);
  chunk.set_size_bytes(std::numeric_limits<uint32_t>::max());
  EXPECT_TRUE(absl::IsInvalidArgument(server_->Take(chunk, never).status()));
  chunk.set_size_bytes(8);
  EXPECT_TRUE(Take(server_.get(), chunk).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(server_->Take(chunk, never).status()))
      << "the chunk has already been taken";
}

TEST_F(ChunkExchangeTest, AnErrorOfTheAllocatorLeavesThePayloadInPlace) {
  SendTurn pulls(server_);
  const ps::SharedChunk chunk = *Put(&pulls, "weights");
  const auto no_place = [](size_t) -> absl::StatusOr<char*> {
    return absl::AbortedError("enough");
  };
  EXPECT_EQ(worker_->Take(chunk, no_place).status(), absl::AbortedError("enough"));
  EXPECT_EQ(Take(worker_.get(), chunk)->text, "weights");
}

TEST_F(ChunkExchangeTest, NothingIsSentWithoutATurn) {
  SendTurn none(nullptr);
  EXPECT_FALSE(Put(&none, "x").has_value());
  {
    SendTurn first(worker_);
    SendTurn second(worker_);
    EXPECT_TRUE(Put(&first, "x").has_value());
    EXPECT_FALSE(Put(&second, "x").has_value());
    SendTurn other_side(server_);
    EXPECT_TRUE(Put(&other_side, "x").has_value()) << "the other direction has a separate turn";
  }
  SendTurn next(worker_);
  EXPECT_TRUE(Put(&next, "x").has_value()) << "the end of a turn lets the next one begin";
}

TEST_F(ChunkExchangeTest, TheNextTurnIsUnaffectedByAnAbandonedOne) {
  for (int turn = 0; turn < 3; ++turn) {
    SendTurn pulls(server_);
    std::vector<ps::SharedChunk> chunks;
    for (int i = 0; i < 5; ++i) {
      const auto chunk = Put(&pulls, std::string(1, static_cast<char>('a' + 5 * turn + i)));
      ASSERT_TRUE(chunk.has_value()) << turn << " " << i;
      chunks.push_back(*chunk);
    }
    // The first two turns end before most of their chunks are read.
    for (int i = 0; i < (turn < 2 ? 1 : 5); ++i) {
      const auto taken = Take(worker_.get(), chunks[i]);
      ASSERT_TRUE(taken.ok()) << taken.status();
      EXPECT_EQ(taken->text, std::string(1, static_cast<char>('a' + 5 * turn + i)));
    }
  }
}

TEST_F(ChunkExchangeTest, AnEmptyPayloadIsNotSentThroughSharedMemory) {
  SendTurn pulls(server_);
  EXPECT_FALSE(pulls.Put(0, [](char*) { ADD_FAILURE() << "an empty payload must not be copied"; })
                   .has_value());
}

TEST_F(ChunkExchangeTest, OnlyOneCallReceivesAtATime) {
  EXPECT_EQ(ReceiveTurn(nullptr).exchange(), nullptr);
  {
    const ReceiveTurn first(worker_);
    EXPECT_EQ(first.exchange(), worker_.get());
    EXPECT_EQ(ReceiveTurn(worker_).exchange(), nullptr);
    EXPECT_EQ(ReceiveTurn(worker_).exchange(), nullptr)
        << "a call without a turn must not end the turn of another";
  }
  EXPECT_EQ(ReceiveTurn(worker_).exchange(), worker_.get());
}

TEST_F(ChunkExchangeTest, TheMemoryOutlivesTheServersSide) {
  SendTurn pushes(worker_);
  server_.reset();
  EXPECT_TRUE(Put(&pushes, "into the void").has_value());
}

}  // namespace
}  // namespace pushpull
