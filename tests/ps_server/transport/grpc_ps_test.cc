// Client and server over real sockets. Each is also tested against a peer that only uses generated
// stubs.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/sharding.h"
#include "common/wire/error_detail.h"
#include "common/wire/gradient_codec.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "protos/parameter_server.grpc.pb.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "tests/testkit/fake_ps_handler.h"
#include "tests/testkit/in_process_ps_client.h"
#include "tests/testkit/pulled_bytes.h"
#include "tests/testkit/test_peer_secret.h"

namespace pushpull {
namespace {

constexpr size_t kChunkBytes = Sharding::kChunkBytes;

std::string UnixAddress() {
  return absl::StrCat("unix:", testing::TempDir(), "/ps_test_", getpid(), ".sock");
}

// Runs with every kind of connection that a client can use.
class PsTransportTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "in_process") {
      client_ = MakeInProcessPsClient(&handler_, "in_process");
      return;
    }
    auto server = StartGrpcPsServer(GetParam() == "unix" ? UnixAddress() : "127.0.0.1:0", &handler_,
                                    WithPeerSecret());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
    client_ = MakeGrpcPsClient(server_->address(), WithPeerSecret());
    if (GetParam() == "shared") OpenSharedMemory();
  }

  bool in_process() const { return server_ == nullptr; }

  absl::Status Pull(ps::PullRequest request, absl::Duration timeout, PsClient::PullSink sink) {
    // A request with a grant may open shared memory.
    if (GetParam() == "shared") request.mutable_grant()->set_grant(1);
    return client_->Pull(request, timeout, sink);
  }

  FakePsHandler handler_;
  std::unique_ptr<GrpcPsServer> server_;
  std::unique_ptr<PsClient> client_;

 private:
  // Opens shared memory that is large enough for the chunks of all tests.
  void OpenSharedMemory() {
    handler_.weights = MakePayload(5 * kChunkBytes, 1);
    ps::PullRequest request;
    request.set_min_version(1000000);  // no test pulls this version
    PulledBytes pulled;
    ASSERT_TRUE(Pull(request, kTimeout, pulled.sink()).ok());
    ASSERT_EQ(handler_.opened(), 1);
    handler_.weights = Payload();
  }
};

TEST_P(PsTransportTest, EveryUnaryCallWorks) {
  ps::JobRequest job;
  job.set_protocol_version(3);
  EXPECT_EQ(client_->GetJob(job, kTimeout)->protocol_version(), 3);
  ps::CommitRequest commit;
  commit.mutable_key()->set_step(4);
  EXPECT_EQ(client_->Commit(commit, kTimeout)->version(), 4);
  EXPECT_EQ(client_->GetStatus({}, kTimeout)->version(), 7);
  EXPECT_EQ(client_->Checkpoint({}, kTimeout)->step(), 8);
  EXPECT_EQ(client_->Drain({}, kTimeout)->version(), 9);
  ps::EvictRequest evict;
  evict.set_worker_id(2);
  EXPECT_EQ(client_->Evict(evict, kTimeout)->replicas(0), 2);
  EXPECT_EQ(client_->GetShardState({}, kTimeout)->boot_id(), 11);
  ps::RestoreRequest restore;
  restore.set_step(12);
  EXPECT_EQ(client_->Restore(restore, kTimeout)->version(), 12);
  ps::ApplyRequest apply;
  apply.set_step(13);
  EXPECT_EQ(client_->Apply(apply, kTimeout)->version(), 13);
  EXPECT_EQ(client_->MeasureNorm(apply, kTimeout)->variable_squared_norms(0), 13);
  ps::SnapshotRequest snapshot;
  snapshot.set_step(14);
  EXPECT_EQ(client_->Snapshot(snapshot, kTimeout)->size_bytes(), 14);
  ps::EndTaskRequest end;
  end.set_run_id("run");
  EXPECT_TRUE(client_->EndTask(end, kTimeout).ok());
  end.set_run_id("other");
  EXPECT_EQ(GetErrorDetail(client_->EndTask(end, kTimeout).status()).kind(),
            ps::ErrorDetail::WRONG_RUN);
}

TEST_P(PsTransportTest, ErrorsCarryTheirDetail) {
  ps::RegisterRequest request;
  request.set_worker_id(3);
  const absl::Status status = client_->Register(request, kTimeout).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetail(status).variable(), "MobilenetV2/Conv/weights");
  EXPECT_NE(status.message().find("clone 3"), std::string::npos);
}

TEST_P(PsTransportTest, AnUnansweredCallEndsAtItsDeadline) {
  EXPECT_EQ(client_->Heartbeat({}, absl::Milliseconds(50)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_P(PsTransportTest, PushesManyChunks) {
  std::string sent;
  auto stream = client_->StartPush(kTimeout);
  for (uint32_t chunk = 0; chunk < 14; ++chunk) {
    const Payload payload = MakePayload(chunk == 13 ? 12345 : kChunkBytes, chunk);
    sent += ToString(payload);
    ASSERT_TRUE(stream->Send(ChunkHeader(chunk), payload).ok());
  }
  const auto reply = stream->Finish();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->version(), 5);
  EXPECT_EQ(reply->staleness(), 13);  // the number of the last chunk, as the handler saw it
  EXPECT_EQ(handler_.Pushed(), sent);
}

TEST_P(PsTransportTest, AnEmptyChunkWithACommitEndsThePush) {
  auto stream = client_->StartPush(kTimeout);
  ps::PushChunk header = ChunkHeader(0);
  header.mutable_commit()->set_samples(8);
  ASSERT_TRUE(stream->Send(header, Payload()).ok());
  EXPECT_EQ(stream->Send(ChunkHeader(1), Payload()).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(handler_.chunk_calls(), 1);
}

TEST_P(PsTransportTest, RefusesAPushWithoutChunks) {
  EXPECT_EQ(client_->StartPush(kTimeout)->Finish().status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(PsTransportTest, ARefusalDuringAPushReachesTheSender) {
  handler_.in_order = true;
  auto stream = client_->StartPush(kTimeout);
  const Payload payload = MakePayload(kChunkBytes, 1);
  for (uint32_t chunk : {0, 1, 5, 6, 7, 8, 9, 10, 11, 12}) {
    if (!stream->Send(ChunkHeader(chunk), payload).ok()) break;
  }
  const absl::Status status = stream->Finish().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::BAD_CHUNK);
  EXPECT_NE(status.message().find("chunk 5 out of order"), std::string::npos) << status;
  EXPECT_EQ(handler_.chunk_calls(), 2);
}

TEST_P(PsTransportTest, PullsALargeShard) {
  handler_.weights = MakePayload(64 * kChunkBytes + 4 * 1000, 7);
  PulledBytes pulled;
  ps::PullRequest request;
  request.set_epoch(2);
  request.set_min_version(99);
  request.set_shard(1);
  uint32_t next = 0;
  const absl::Status status =
      Pull(request, kTimeout, [&](const ps::PullChunk& header, size_t size_bytes) {
        EXPECT_EQ(header.epoch(), 2);
        EXPECT_EQ(header.version(), 99);
        EXPECT_EQ(header.shard(), 1);
        EXPECT_EQ(header.chunk(), next++);
        EXPECT_TRUE(header.payload().empty());
        return pulled.sink()(header, size_bytes);
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(next, NumChunks(64 * Sharding::kChunkElements + 1000));
  EXPECT_EQ(pulled.bytes, ToString(handler_.weights));
}

TEST_P(PsTransportTest, PullsWeightsInTheEncodingAskedFor) {
  auto weights = std::make_shared<std::vector<float>>(4 * Sharding::kChunkElements + 1000);
  for (size_t i = 0; i < weights->size(); ++i) (*weights)[i] = 1.0f / static_cast<float>(i + 3);
  handler_.weights = {weights, reinterpret_cast<const char*>(weights->data()), 4 * weights->size()};
  std::string expected(2 * weights->size(), '\0');
  Bfloat16Codec().Encode(*weights, expected.data());
  ps::PullRequest request;
  request.set_encoding(ps::BFLOAT16);
  for (int i = 0; i < 2; ++i) {  // the second pull finds the checksums of the first
    PulledBytes pulled;
    const absl::Status status =
        Pull(request, kTimeout, [&](const ps::PullChunk& header, size_t size_bytes) {
          EXPECT_EQ(header.encoding(), ps::BFLOAT16);
          return pulled.sink()(header, size_bytes);
        });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(pulled.bytes == expected);
  }
  PulledBytes pulled;
  EXPECT_TRUE(Pull({}, kTimeout, pulled.sink()).ok());
  EXPECT_TRUE(pulled.bytes == ToString(handler_.weights));
}

TEST_P(PsTransportTest, RefusesWeightsInAnEncodingThatItDoesNotServe) {
  handler_.weights = MakePayload(1000, 1);
  for (const int encoding : {static_cast<int>(ps::INT8_BLOCKS), 3, 77, -1}) {
    ps::PullRequest request;
    request.set_encoding(static_cast<ps::GradientEncoding>(encoding));
    PulledBytes pulled;
    const absl::Status status = Pull(request, kTimeout, pulled.sink());
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << encoding << ": " << status;
    EXPECT_NE(status.message().find(absl::StrCat("encoding ", encoding)), std::string::npos)
        << status;
    EXPECT_EQ(pulled.bytes, "");
  }
}

TEST_P(PsTransportTest, APullOfAnEmptyShardIsOneEmptyChunk) {
  PulledBytes pulled;
  const absl::Status status = Pull({}, kTimeout, pulled.sink());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(pulled.chunks, 1);
  EXPECT_EQ(pulled.bytes, "");
}

TEST_P(PsTransportTest, AnErrorOfTheSinkEndsThePull) {
  handler_.weights = MakePayload(40 * kChunkBytes, 7);
  PulledBytes pulled;
  const auto sink = [&](const ps::PullChunk& header, size_t size_bytes) -> absl::StatusOr<char*> {
    if (pulled.chunks == 2) return absl::AbortedError("enough");
    return pulled.sink()(header, size_bytes);
  };
  EXPECT_EQ(Pull({}, kTimeout, sink), absl::AbortedError("enough"));
  const size_t two_chunks = 2 * Sharding::kFirstChunkElements * sizeof(float);
  EXPECT_EQ(pulled.bytes, ToString(handler_.weights).substr(0, two_chunks));
}

TEST_P(PsTransportTest, APullMayBeAnsweredLater) {
  handler_.hold_pulls = true;
  PullSnapshot snapshot;
  snapshot.version = 8;
  snapshot.payload = MakePayload(kChunkBytes + 8, 1);
  std::thread answerer([&] { handler_.AnswerHeldPull(snapshot); });
  PulledBytes pulled;
  const absl::Status status = Pull({}, kTimeout, pulled.sink());
  answerer.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(pulled.version, 8);
}

TEST_P(PsTransportTest, TheDeadlineCancelsAWaitingPullAndPushAtTheHandler) {
  handler_.hold_pulls = true;
  handler_.hold_pushes = true;
  PulledBytes pulled;
  // On a busy machine the deadline may pass before the request arrives; the loop then tries a
  // longer one.
  absl::Duration timeout = absl::Milliseconds(50);
  for (; handler_.held_pulls() == 0; timeout *= 2) {
    EXPECT_EQ(Pull({}, timeout, pulled.sink()).code(), absl::StatusCode::kDeadlineExceeded);
  }
  handler_.AwaitCancelledPull();
  handler_.AnswerHeldPull(PullSnapshot());  // too late: the answer is dropped
  for (; handler_.held_pushes() == 0; timeout *= 2) {
    auto stream = client_->StartPush(timeout);
    stream->Send(ChunkHeader(0), MakePayload(1000, 1)).IgnoreError();
    EXPECT_EQ(stream->Finish().status().code(), absl::StatusCode::kDeadlineExceeded);
  }
  handler_.AwaitCancelledPush();
}

// A large model over a slow network takes longer than any fixed time. `timeout` bounds each wait
// for the server, which on a busy machine may be too short; the loops then try a longer one.
TEST_P(PsTransportTest, ATransferThatGoesOnMayTakeLongerThanTheTimeout) {
  handler_.weights = MakePayload(3 * kChunkBytes, 1);
  absl::Status pull = absl::DeadlineExceededError("");
  for (absl::Duration timeout = absl::Milliseconds(50);
       absl::IsDeadlineExceeded(pull) && timeout < absl::Seconds(4); timeout *= 2) {
    PulledBytes pulled;
    const auto sink = pulled.sink();
    pull = Pull({}, timeout, [&](const ps::PullChunk& header, size_t size_bytes) {
      absl::SleepFor(timeout);
      return sink(header, size_bytes);
    });
  }
  EXPECT_TRUE(pull.ok()) << pull;
  absl::Status push = absl::DeadlineExceededError("");
  for (absl::Duration timeout = absl::Milliseconds(50);
       absl::IsDeadlineExceeded(push) && timeout < absl::Seconds(4); timeout *= 2) {
    auto stream = client_->StartPush(timeout);
    for (uint32_t chunk = 0; chunk < 3; ++chunk) {
      stream->Send(ChunkHeader(chunk), MakePayload(1000, chunk)).IgnoreError();
      absl::SleepFor(timeout);
    }
    stream->EndSending();
    push = stream->Finish().status();
  }
  EXPECT_TRUE(push.ok()) << push;
}

TEST_P(PsTransportTest, AnAbandonedPushIsHarmless) {
  {
    auto stream = client_->StartPush(kTimeout);
    ASSERT_TRUE(stream->Send(ChunkHeader(0), MakePayload(kChunkBytes, 1)).ok());
  }
  client_->StartPush(kTimeout);
  EXPECT_TRUE(client_->GetStatus({}, kTimeout).ok());
}

TEST_P(PsTransportTest, ManyThreadsMayShareAClient) {
  handler_.weights = MakePayload(5 * kChunkBytes, 7);
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (uint32_t k = 0; k < 4; ++k) {
    threads.emplace_back([&, k] {
      for (uint32_t i = 0; i < 5; ++i) {
        auto stream = client_->StartPush(kTimeout);
        for (uint32_t c = 0; c < 3; ++c) {
          stream->Send(ChunkHeader(k * 3 + c), MakePayload(kChunkBytes, k)).IgnoreError();
        }
        const bool pushed = stream->Finish().ok();
        PulledBytes pulled;
        const bool complete = Pull({}, kTimeout, pulled.sink()).ok();
        if (pushed && complete && pulled.bytes.size() == 5 * kChunkBytes) ++good;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 20);
}

INSTANTIATE_TEST_SUITE_P(All, PsTransportTest,
                         testing::Values("tcp", "unix", "shared", "in_process"),
                         [](const auto& info) { return info.param; });

TEST(GrpcPsClientTest, AMissingServerIsUnavailableAtOnce) {
  auto client = MakeGrpcPsClient("127.0.0.1:1");
  const absl::Status status = client->GetStatus({}, kTimeout).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("127.0.0.1:1"), std::string::npos) << status;
  auto stream = client->StartPush(kTimeout);
  stream->Send(ChunkHeader(0), MakePayload(100, 1)).IgnoreError();
  EXPECT_EQ(stream->Finish().status().code(), absl::StatusCode::kUnavailable);
}

// Workers that start before their server call in this way. gRPC itself would retry the connection
// only every five seconds.
TEST(GrpcPsClientTest, FindsAServerThatStartsLater) {
  FakePsHandler handler;
  const std::string socket = absl::StrCat(testing::TempDir(), "/late_", getpid(), ".sock");
  auto tcp = StartGrpcPsServer("127.0.0.1:0", &handler);
  ASSERT_TRUE(tcp.ok()) << tcp.status();
  for (const std::string& address : {(*tcp)->address(), "unix:" + socket}) {
    tcp->reset();
    auto client = MakeGrpcPsClient(address);
    for (int attempt = 0; attempt < 2; ++attempt) {
      EXPECT_EQ(client->GetStatus({}, kTimeout).status().code(), absl::StatusCode::kUnavailable);
    }
    const auto server = StartGrpcPsServer(address, &handler);
    ASSERT_TRUE(server.ok()) << server.status();
    absl::Status status = absl::UnavailableError("");
    for (int attempt = 0; attempt < 3 && !status.ok(); ++attempt) {
      status = client->GetStatus({}, kTimeout).status();
    }
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(GrpcPsServerTest, AServerThatStopsFailsThePushAndIsFoundAgain) {
  FakePsHandler handler;
  auto server = StartGrpcPsServer("127.0.0.1:0", &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  auto client = MakeGrpcPsClient((*server)->address());
  auto stream = client->StartPush(kTimeout);
  const Payload payload = MakePayload(kChunkBytes, 1);
  ASSERT_TRUE(stream->Send(ChunkHeader(0), payload).ok());
  handler.AwaitChunks(1);
  const std::string address = (*server)->address();
  server->reset();
  // Once the flow-control window is full, sending fails at the latest.
  for (uint32_t chunk = 1; chunk < 100; ++chunk) {
    if (!stream->Send(ChunkHeader(chunk), payload).ok()) break;
  }
  EXPECT_FALSE(stream->Finish().ok());

  // A new server has the same address, and the client finds it.
  server = StartGrpcPsServer(address, &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  absl::Status status;
  for (int i = 0; i < 1000; ++i) {
    status = client->GetStatus({}, kTimeout).status();
    if (status.ok()) break;
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_TRUE(status.ok()) << status;
}

TEST(GrpcPsServerTest, StopCancelsRunningCalls) {
  FakePsHandler handler;
  handler.hold_pulls = true;
  handler.hold_pushes = true;
  auto server = StartGrpcPsServer("127.0.0.1:0", &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  auto client = MakeGrpcPsClient((*server)->address());
  absl::Status pulled, pushed, beaten;
  std::thread puller([&] { pulled = client->Pull({}, kTimeout, PulledBytes().sink()); });
  std::thread pusher([&] {
    auto stream = client->StartPush(kTimeout);
    stream->Send(ChunkHeader(0), MakePayload(100, 1)).IgnoreError();
    pushed = stream->Finish().status();
  });
  std::thread beater([&] { beaten = client->Heartbeat({}, kTimeout).status(); });
  handler.AwaitHeldPull();
  handler.AwaitHeldPush();
  handler.AwaitHeldHeartbeat();
  (*server)->Stop(absl::Milliseconds(10));
  for (std::thread* thread : {&puller, &pusher, &beater}) thread->join();
  for (const absl::Status& status : {pulled, pushed, beaten}) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << "another server may go on with the job: " << status;
  }
  handler.AwaitCancelledPull();
  handler.AwaitCancelledPush();
}

TEST(GrpcPsServerTest, RefusesAnOversizeMessage) {
  FakePsHandler handler;
  auto server = StartGrpcPsServer("127.0.0.1:0", &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  auto client = MakeGrpcPsClient((*server)->address());
  auto stream = client->StartPush(kTimeout);
  stream->Send(ChunkHeader(0), MakePayload(3 * kChunkBytes, 1)).IgnoreError();
  EXPECT_EQ(stream->Finish().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(handler.chunk_calls(), 0);
}

TEST(GrpcPsServerTest, RefusesMalformedBytes) {
  FakePsHandler handler;
  auto server = StartGrpcPsServer("127.0.0.1:0", &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  grpc::GenericStub stub(
      grpc::CreateChannel((*server)->address(), grpc::InsecureChannelCredentials()));
  for (const char* method :
       {"/ps.ParameterServer/Push", "/ps.ParameterServer/Pull", "/ps.ParameterServer/GetJob"}) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const grpc::Slice slice(std::string("\xff\xff\xff"));
    grpc::ByteBuffer request(&slice, 1), reply;
    auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
    call->StartCall();
    grpc::Status status;
    call->Finish(&reply, &status, nullptr);
    void* tag;
    bool ok;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_FALSE(status.ok()) << method;
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
  }
  EXPECT_EQ(handler.chunk_calls(), 0);
}

TEST(GrpcPsServerTest, ServesAClientOfGeneratedCode) {
  FakePsHandler handler;
  handler.weights = MakePayload(2 * kChunkBytes + 400, 3);
  auto server = StartGrpcPsServer("127.0.0.1:0", &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  auto stub = ps::ParameterServer::NewStub(
      grpc::CreateChannel((*server)->address(), grpc::InsecureChannelCredentials()));
  {
    grpc::ClientContext context;
    ps::PushReply reply;
    auto writer = stub->Push(&context, &reply);
    for (uint32_t i = 0; i < 3; ++i) {
      const Payload payload = MakePayload(kChunkBytes, i);
      ps::PushChunk chunk = ChunkHeader(i);
      chunk.set_crc32c(Crc32c(payload.data, payload.size_bytes));
      chunk.set_payload(ToString(payload));
      ASSERT_TRUE(writer->Write(chunk));
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(reply.version(), 5);
  }
  EXPECT_EQ(handler.Pushed().substr(kChunkBytes, kChunkBytes),
            ToString(MakePayload(kChunkBytes, 1)));
  grpc::ClientContext context;
  auto reader = stub->Pull(&context, ps::PullRequest());
  std::string received;
  ps::PullChunk chunk;
  while (reader->Read(&chunk)) {
    EXPECT_EQ(chunk.crc32c(), Crc32c(chunk.payload()));
    received += chunk.payload();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(received, ToString(handler.weights));
}

// A server that only uses generated code.
class PlainServer final : public ps::ParameterServer::Service {
 public:
  grpc::Status Push(grpc::ServerContext*, grpc::ServerReader<ps::PushChunk>* reader,
                    ps::PushReply* reply) override {
    ps::PushChunk chunk;
    while (reader->Read(&chunk)) {
      if (chunk.crc32c() != Crc32c(chunk.payload())) {
        return grpc::Status(grpc::StatusCode::DATA_LOSS, "checksum");
      }
      pushed += chunk.payload();
      reply->set_version(chunk.key().step());
    }
    return grpc::Status::OK;
  }
  grpc::Status Pull(grpc::ServerContext*, const ps::PullRequest* request,
                    grpc::ServerWriter<ps::PullChunk>* writer) override {
    ps::PullChunk chunk;
    for (uint32_t i = 0; i < 3; ++i) {
      chunk.set_chunk(request->shard() == 1 ? 3 - i : i);
      chunk.set_payload(ToString(MakePayload(1000, i)));
      chunk.set_crc32c(Crc32c(chunk.payload()) + (request->shard() == 2 && i == 2 ? 1 : 0));
      writer->Write(chunk);
    }
    return grpc::Status::OK;
  }
  std::string pushed;
};

TEST(GrpcPsClientTest, WorksWithAServerOfGeneratedCode) {
  PlainServer service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  auto server = builder.BuildAndStart();
  auto client = MakeGrpcPsClient(absl::StrCat("127.0.0.1:", port));
  std::string sent;
  auto stream = client->StartPush(kTimeout);
  for (uint32_t i = 0; i < 3; ++i) {
    const Payload payload = MakePayload(kChunkBytes, i);
    sent += ToString(payload);
    ASSERT_TRUE(stream->Send(ChunkHeader(i), payload).ok()) << stream->Finish().status();
  }
  const auto reply = stream->Finish();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->version(), 5);
  EXPECT_EQ(service.pushed, sent);

  PulledBytes pulled;
  ps::PullRequest request;
  EXPECT_TRUE(client->Pull(request, kTimeout, pulled.sink()).ok());
  EXPECT_EQ(pulled.bytes.size(), 3000);
  // Chunks in the wrong order and a wrong checksum are errors of the pull.
  request.set_shard(1);
  EXPECT_EQ(client->Pull(request, kTimeout, pulled.sink()).code(), absl::StatusCode::kInternal);
  request.set_shard(2);
  const absl::Status status = client->Pull(request, kTimeout, pulled.sink());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::BAD_CHECKSUM);
  // A call that the server does not know fails with UNIMPLEMENTED.
  EXPECT_EQ(client->GetStatus({}, kTimeout).status().code(), absl::StatusCode::kUnimplemented);
  server->Shutdown();
}

}  // namespace
}  // namespace pushpull
