#include "ps_server/transport/exchange_table.h"

#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

#include "common/base/crc32c.h"
#include "common/model/sharding.h"

namespace pushpull {
namespace {

// Opens an exchange for a shard of four chunks and returns the worker's side.
std::shared_ptr<ChunkExchange> Open(ExchangeTable* table, uint32_t worker_id, uint32_t replica) {
  ps::OpenSharedMemoryRequest request;
  request.set_worker_id(worker_id);
  request.mutable_grant()->set_replica(replica);
  ps::OpenSharedMemoryReply reply;
  reply.set_shard_bytes(Sharding::kChunkBytes);
  EXPECT_TRUE(table->Open(request, &reply).ok());
  EXPECT_EQ(reply.shard_bytes(), Sharding::kChunkBytes);
  auto worker = ChunkExchange::Attach(reply);
  EXPECT_TRUE(worker.ok()) << worker.status();
  return *worker;
}

ps::SharedChunk Push(const std::shared_ptr<ChunkExchange>& worker, const std::string& text) {
  SendTurn turn(worker);
  const auto chunk =
      turn.Put(text.size(), [&](char* slot) { std::memcpy(slot, text.data(), text.size()); });
  EXPECT_TRUE(chunk.has_value());
  return chunk.value_or(ps::SharedChunk());
}

TEST(ExchangeTableTest, RefusesProcessesOfOtherHosts) {
  const ExchangeTable table;
  ps::OpenSharedMemoryRequest request;
  request.set_host(HostIdentity());
  EXPECT_TRUE(table.CheckHost(request).ok());
  for (const std::string& host : {std::string(), std::string("another"), HostIdentity() + "1"}) {
    request.set_host(host);
    const absl::Status status = table.CheckHost(request);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "another machine")) << status;
  }
}

TEST(ExchangeTableTest, CopiesAPushedPayloadOutOfTheRing) {
  ExchangeTable table;
  const auto worker = Open(&table, 3, 3);
  const ps::SharedChunk chunk = Push(worker, "gradient");
  const auto payload = table.TakePushed(3, chunk);
  ASSERT_TRUE(payload.ok()) << payload.status();
  // Later pushes must not change the payload that was taken. They fill every slot of the ring.
  SendTurn turn(worker);
  for (int pushed = 0; turn.Put(8, [](char* slot) { std::memcpy(slot, "GRADIENT", 8); });
       ++pushed) {
    ASSERT_LT(pushed, 1000);
  }
  EXPECT_EQ(std::string(payload->data, payload->size_bytes), "gradient");
  ASSERT_TRUE(payload->crc32c.has_value());
  EXPECT_EQ(*payload->crc32c, Crc32c("gradient"));
  EXPECT_TRUE(absl::IsInvalidArgument(table.TakePushed(3, chunk).status()))
      << "the payload has already been taken";
}

TEST(ExchangeTableTest, RefusesUnknownClonesAndTokens) {
  ExchangeTable table;
  const auto first = Open(&table, 1, 1);
  const auto second = Open(&table, 2, 2);
  ps::SharedChunk chunk = Push(first, "of clone 1");
  const absl::Status foreign = table.TakePushed(2, chunk).status();
  EXPECT_TRUE(absl::IsNotFound(foreign)) << "another clone's token: " << foreign;
  EXPECT_TRUE(absl::StrContains(foreign.message(), "clone 2")) << foreign;
  EXPECT_TRUE(absl::IsNotFound(table.TakePushed(0, chunk).status())) << "an unknown clone";
  EXPECT_EQ(table.Find(2, first->token()), nullptr);
  EXPECT_EQ(table.Find(0, first->token()), nullptr);
  EXPECT_EQ(table.Find(1, 0), nullptr);
  EXPECT_EQ(table.Find(1, first->token() + 1), nullptr);
  ASSERT_NE(table.Find(1, first->token()), nullptr);
  EXPECT_EQ(table.Find(1, first->token())->token(), first->token());
  EXPECT_TRUE(table.TakePushed(1, chunk).ok()) << "the refused calls must not have taken it";
  chunk.set_token(first->token() + 1);
  EXPECT_TRUE(absl::IsNotFound(table.TakePushed(1, chunk).status())) << "an unknown token";
}

TEST(ExchangeTableTest, ANewExchangeReplacesTheOldOne) {
  ExchangeTable table;
  const auto old = Open(&table, 1, 1);
  const ps::SharedChunk lost = Push(old, "old");
  const std::shared_ptr<ChunkExchange> in_use = table.Find(1, old->token());
  const auto fresh = Open(&table, 1, 1);
  EXPECT_EQ(table.Find(1, old->token()), nullptr);
  EXPECT_TRUE(absl::IsNotFound(table.TakePushed(1, lost).status()));
  EXPECT_TRUE(table.TakePushed(1, Push(fresh, "new")).ok());
  // A call that began with the old exchange may finish with it.
  SendTurn turn(in_use);
  EXPECT_TRUE(turn.Put(1, [](char* slot) { *slot = 'x'; }).has_value());
}

TEST(ExchangeTableTest, AReplicaThatMovesEndsTheOldExchange) {
  ExchangeTable table;
  const auto first = Open(&table, 1, 5);
  const auto other = Open(&table, 1, 6);
  const auto heir = Open(&table, 2, 5);
  EXPECT_EQ(table.Find(1, first->token()), nullptr);
  EXPECT_NE(table.Find(1, other->token()), nullptr) << "clone 1 still has this replica";
  EXPECT_NE(table.Find(2, heir->token()), nullptr);
}

}  // namespace
}  // namespace pushpull
