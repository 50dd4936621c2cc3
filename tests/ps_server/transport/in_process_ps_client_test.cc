#include "tests/testkit/in_process_ps_client.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/sharding.h"
#include "common/wire/error_detail.h"
#include "tests/testkit/fake_ps_handler.h"
#include "tests/testkit/pulled_bytes.h"

namespace pushpull {
namespace {

// A hook that gives message number `at` this fault and all other messages none.
FaultHook FaultAt(uint64_t at, CallFault fault) {
  return [=](const MessageInfo& info) { return info.sequence == at ? fault : CallFault(); };
}

TEST(InProcessPsClientTest, TheHandlerNeverSeesADroppedRequest) {
  FakePsHandler handler;
  CallFault fault;
  fault.drop_request = true;
  auto client = MakeInProcessPsClient(&handler, "shard 0", FaultAt(0, fault));
  const absl::Status status = client->Commit({}, kTimeout).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("shard 0"), std::string::npos);
  EXPECT_EQ(handler.commits(), 0);
  EXPECT_TRUE(client->Commit({}, kTimeout).ok());
}

TEST(InProcessPsClientTest, TheHandlerSeesADroppedReplyOnceAndDuplicatesMoreOften) {
  FakePsHandler handler;
  CallFault drop;
  drop.drop_reply = true;
  CallFault twice;
  twice.duplicates = 2;
  auto client = MakeInProcessPsClient(
      &handler, "s", [=](const MessageInfo& info) { return info.sequence == 0 ? drop : twice; });
  EXPECT_EQ(client->Commit({}, kTimeout).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(handler.commits(), 1);
  EXPECT_TRUE(client->Commit({}, kTimeout).ok());
  EXPECT_EQ(handler.commits(), 4);
}

TEST(InProcessPsClientTest, InjectsFaultsIntoAPush) {
  FakePsHandler handler;
  std::vector<std::string> seen;
  auto client = MakeInProcessPsClient(&handler, "s", [&](const MessageInfo& info) {
    seen.push_back(absl::StrCat(info.method, info.chunk));
    CallFault fault;
    fault.drop_request = info.sequence == 1;
    fault.duplicates = info.sequence == 2 ? 1 : 0;
    fault.drop_reply = info.sequence == 4;
    return fault;
  });
  auto broken = client->StartPush(kTimeout);
  EXPECT_TRUE(broken->Send(ChunkHeader(0), MakePayload(100, 0)).ok());
  EXPECT_FALSE(broken->Send(ChunkHeader(1), MakePayload(100, 1)).ok());
  EXPECT_EQ(broken->Finish().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(handler.chunk_calls(), 1);

  auto again = client->StartPush(kTimeout);
  EXPECT_TRUE(again->Send(ChunkHeader(0), MakePayload(100, 0)).ok());
  EXPECT_TRUE(again->Send(ChunkHeader(1), MakePayload(100, 1)).ok());
  EXPECT_EQ(again->Finish().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(handler.chunk_calls(), 4);
  EXPECT_EQ(seen, (std::vector<std::string>{"PushChunk0", "PushChunk1", "PushChunk0", "PushChunk1",
                                            "FinishPush0"}));
}

TEST(InProcessPsClientTest, TheHandlerGetsACopyOfThePush) {
  FakePsHandler handler;
  auto client = MakeInProcessPsClient(&handler, "s");
  std::string gradient(1000, 'a');
  auto stream = client->StartPush(kTimeout);
  ASSERT_TRUE(
      stream->Send(ChunkHeader(0), Payload{nullptr, gradient.data(), gradient.size()}).ok());
  ASSERT_TRUE(stream->Finish().ok());
  gradient.assign(1000, 'b');
  EXPECT_EQ(handler.Pushed(), std::string(1000, 'a'));
}

TEST(InProcessPsClientTest, ADroppedReplyBreaksAPullAfterItsFirstChunk) {
  FakePsHandler handler;
  handler.weights = MakePayload(Sharding::kChunkBytes / 2, 1);  // three chunks
  CallFault fault;
  fault.drop_reply = true;
  auto client = MakeInProcessPsClient(&handler, "s", FaultAt(0, fault));
  PulledBytes pulled;
  EXPECT_EQ(client->Pull({}, kTimeout, pulled.sink()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(pulled.chunks, 1);
  EXPECT_TRUE(client->Pull({}, kTimeout, pulled.sink()).ok());
  EXPECT_EQ(pulled.chunks, 4);
}

}  // namespace
}  // namespace pushpull
