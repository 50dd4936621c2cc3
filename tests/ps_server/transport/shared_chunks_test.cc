// Chunks whose payloads lie in shared memory. The peer under test talks to one that only uses
// generated stubs, which shows what the messages contain.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/model/sharding.h"
#include "common/wire/error_detail.h"
#include "common/wire/gradient_codec.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "common/wire/shared_memory/chunk_exchange.h"
#include "protos/parameter_server.grpc.pb.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "tests/testkit/fake_ps_handler.h"
#include "tests/testkit/pulled_bytes.h"

namespace pushpull {
namespace {

constexpr size_t kChunkBytes = Sharding::kChunkBytes;

ps::PullRequest GrantedPull(uint32_t worker_id = 0) {
  ps::PullRequest request;
  request.set_worker_id(worker_id);
  request.mutable_grant()->set_grant(1);
  return request;
}

absl::Status PushChunks(PsClient* client, uint32_t chunks, std::string* sent) {
  auto stream = client->StartPush(kTimeout);
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const Payload payload = MakePayload(chunk + 1 == chunks ? 12344 : kChunkBytes, chunk);
    *sent += ToString(payload);
    if (!stream->Send(ChunkHeader(chunk), payload).ok()) break;
  }
  return stream->Finish().status();
}

ps::SharedChunk PutInto(const std::shared_ptr<ChunkExchange>& exchange, const Payload& payload) {
  SendTurn turn(exchange);
  const auto chunk = turn.Put(
      payload.size_bytes, [&](char* slot) { std::memcpy(slot, payload.data, payload.size_bytes); });
  EXPECT_TRUE(chunk.has_value());
  return chunk.value_or(ps::SharedChunk());
}

absl::StatusOr<std::string> TakeFrom(ChunkExchange* exchange, const ps::SharedChunk& chunk) {
  std::string bytes;
  const auto crc = exchange->Take(chunk, [&](size_t size_bytes) -> absl::StatusOr<char*> {
    bytes.resize(size_bytes);
    return bytes.data();
  });
  if (!crc.ok()) return crc.status();
  return bytes;
}

// The server, with a client of generated code.
class SharedChunksServerTest : public testing::Test {
 protected:
  void SetUp() override {
    handler_.weights = MakePayload(3 * kChunkBytes + 400, 3);
    auto server = StartGrpcPsServer("127.0.0.1:0", &handler_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = ps::ParameterServer::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }

  grpc::Status Open(const ps::OpenSharedMemoryRequest& request, ps::OpenSharedMemoryReply* reply) {
    grpc::ClientContext context;
    return stub_->OpenSharedMemory(&context, request, reply);
  }
  static ps::OpenSharedMemoryRequest OpenRequest(uint32_t worker_id) {
    ps::OpenSharedMemoryRequest request;
    request.set_worker_id(worker_id);
    request.mutable_grant()->set_grant(1);
    request.set_host(HostIdentity());
    return request;
  }
  // Returns the worker's side of the exchange that worker_id opened.
  std::shared_ptr<ChunkExchange> OpenedBy(uint32_t worker_id) {
    ps::OpenSharedMemoryReply reply;
    const grpc::Status status = Open(OpenRequest(worker_id), &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(reply.shard_bytes(), handler_.weights.size_bytes);
    auto exchange = ChunkExchange::Attach(reply);
    EXPECT_TRUE(exchange.ok()) << exchange.status();
    return exchange.ok() ? *exchange : nullptr;
  }

  // Starts another server at the same address and waits until the client has found it.
  void Restart(PsClient* client) {
    const std::string address = server_->address();
    server_.reset();
    auto server = StartGrpcPsServer(address, &handler_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    absl::Status found = absl::UnavailableError("");
    for (int i = 0; i < 1000 && !found.ok(); ++i) found = client->GetStatus({}, kTimeout).status();
    ASSERT_TRUE(found.ok()) << found;
  }
  std::vector<ps::PullChunk> Pull(const ps::PullRequest& request) {
    grpc::ClientContext context;
    auto reader = stub_->Pull(&context, request);
    std::vector<ps::PullChunk> chunks;
    for (ps::PullChunk chunk; reader->Read(&chunk);) chunks.push_back(chunk);
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return chunks;
  }
  grpc::Status Push(const ps::PushChunk& chunk) {
    grpc::ClientContext context;
    ps::PushReply reply;
    auto writer = stub_->Push(&context, &reply);
    writer->Write(chunk);
    writer->WritesDone();
    return writer->Finish();
  }

  FakePsHandler handler_;
  std::unique_ptr<GrpcPsServer> server_;
  std::unique_ptr<ps::ParameterServer::Stub> stub_;
};

TEST_F(SharedChunksServerTest, PulledPayloadsLieInTheRingAndNotInTheMessages) {
  const auto exchange = OpenedBy(2);
  ps::PullRequest request = GrantedPull(2);
  request.set_shared_memory(exchange->token());
  const std::vector<ps::PullChunk> chunks = Pull(request);
  ASSERT_EQ(chunks.size(), 7);
  std::string bytes;
  for (const ps::PullChunk& chunk : chunks) {
    EXPECT_TRUE(chunk.payload().empty());
    ASSERT_TRUE(chunk.has_shared());
    const auto taken = TakeFrom(exchange.get(), chunk.shared());
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_EQ(Crc32c(*taken), chunk.crc32c());
    bytes += *taken;
  }
  EXPECT_TRUE(bytes == ToString(handler_.weights));
}

TEST_F(SharedChunksServerTest, PulledPayloadsAreEncodedIntoTheRing) {
  auto weights = std::make_shared<std::vector<float>>(handler_.weights.size_bytes / 4, 0.1f);
  handler_.weights = {weights, reinterpret_cast<const char*>(weights->data()),
                      handler_.weights.size_bytes};
  const auto exchange = OpenedBy(2);
  ps::PullRequest request = GrantedPull(2);
  request.set_shared_memory(exchange->token());
  request.set_encoding(ps::BFLOAT16);
  std::string bytes;
  for (const ps::PullChunk& chunk : Pull(request)) {
    EXPECT_EQ(chunk.encoding(), ps::BFLOAT16);
    ASSERT_TRUE(chunk.has_shared());
    const auto taken = TakeFrom(exchange.get(), chunk.shared());
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_EQ(Crc32c(*taken), chunk.crc32c());
    bytes += *taken;
  }
  std::string expected(2 * weights->size(), '\0');
  Bfloat16Codec().Encode(*weights, expected.data());
  EXPECT_TRUE(bytes == expected);
}

// They hold elements that nothing may round. The first pull goes through shared memory, the second
// through the connection, and the others find the checksums of these.
TEST_F(SharedChunksServerTest, NamedChunksArriveAsFloat32InAnyEncoding) {
  const auto client = MakeGrpcPsClient(server_->address());
  PullSnapshot snapshot;
  snapshot.payload = handler_.weights;
  for (ps::PullRequest request :
       {GrantedPull(), ps::PullRequest(), GrantedPull(), ps::PullRequest()}) {
    request.set_encoding(ps::BFLOAT16);
    for (const uint32_t chunk : {1, 4}) request.add_float32_chunks(chunk);
    std::vector<std::string> chunks;
    const absl::Status status =
        client->Pull(request, kTimeout, [&](const ps::PullChunk& header, size_t size_bytes) {
          const bool is_exact = header.chunk() == 1 || header.chunk() == 4;
          EXPECT_EQ(header.encoding(), is_exact ? ps::FLOAT32 : ps::BFLOAT16) << header.chunk();
          return chunks.emplace_back(size_bytes, '\0').data();
        });
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(chunks.size(), 7);
    for (const int chunk : {1, 4}) {
      EXPECT_TRUE(chunks[chunk] == ToString(ChunkOfSnapshot(snapshot, chunk))) << chunk;
    }
  }
  EXPECT_EQ(handler_.opened(), 1);
}

TEST_F(SharedChunksServerTest, WithoutAnExchangePayloadsAreInTheMessages) {
  const auto own = OpenedBy(2);
  const auto other = OpenedBy(3);
  for (const uint64_t token : {uint64_t{0}, own->token() + 1, other->token()}) {
    ps::PullRequest request = GrantedPull(2);
    request.set_shared_memory(token);
    std::string bytes;
    for (const ps::PullChunk& chunk : Pull(request)) {
      EXPECT_FALSE(chunk.has_shared());
      bytes += chunk.payload();
    }
    EXPECT_TRUE(bytes == ToString(handler_.weights)) << token;
  }
}

TEST_F(SharedChunksServerTest, APayloadWithoutAFreeSlotIsInItsMessage) {
  handler_.weights = MakePayload(20 * kChunkBytes, 3);
  const auto exchange = OpenedBy(0);
  ps::PullRequest request = GrantedPull();
  request.set_shared_memory(exchange->token());
  // The client takes nothing out of the ring before the pull is over.
  const std::vector<ps::PullChunk> chunks = Pull(request);
  ASSERT_EQ(chunks.size(), 23);
  std::string bytes;
  for (size_t i = 0; i < chunks.size(); ++i) {
    EXPECT_EQ(chunks[i].has_shared(), i < ChunkExchange::kMaxSlots) << i;
    EXPECT_EQ(chunks[i].payload().empty(), i < ChunkExchange::kMaxSlots) << i;
    bytes += chunks[i].has_shared() ? *TakeFrom(exchange.get(), chunks[i].shared())
                                    : chunks[i].payload();
  }
  EXPECT_TRUE(bytes == ToString(handler_.weights));
}

TEST_F(SharedChunksServerTest, TakesAPushedPayloadFromTheRing) {
  const auto exchange = OpenedBy(2);
  const Payload payload = MakePayload(5000, 1);
  ps::PushChunk chunk = ChunkHeader(0, 2);
  chunk.set_crc32c(Crc32c(payload.data, payload.size_bytes));
  *chunk.mutable_shared() = PutInto(exchange, payload);
  const grpc::Status status = Push(chunk);
  EXPECT_TRUE(status.ok()) << status.error_message();
  // Later messages must not change the payload that was taken. They fill every slot of the ring.
  const Payload later = MakePayload(5000, 2);
  SendTurn turn(exchange);
  for (int put = 0; turn.Put(later.size_bytes,
                             [&](char* slot) { std::memcpy(slot, later.data, later.size_bytes); });
       ++put) {
    ASSERT_LT(put, 1000);
  }
  EXPECT_EQ(handler_.Pushed(), ToString(payload));
}

TEST_F(SharedChunksServerTest, RefusesAPushThatNamesMemoryOfAnotherWorker) {
  const auto own = OpenedBy(2);
  const auto other = OpenedBy(3);
  const Payload payload = MakePayload(5000, 1);
  ps::PushChunk chunk = ChunkHeader(0, 2);
  chunk.set_crc32c(Crc32c(payload.data, payload.size_bytes));
  *chunk.mutable_shared() = PutInto(own, payload);
  chunk.mutable_shared()->set_token(own->token() + 1);
  EXPECT_EQ(Push(chunk).error_code(), grpc::StatusCode::NOT_FOUND);
  *chunk.mutable_shared() = PutInto(other, payload);
  EXPECT_EQ(Push(chunk).error_code(), grpc::StatusCode::NOT_FOUND)
      << "the exchange belongs to clone 3";
  chunk.mutable_key()->set_worker_id(4);
  EXPECT_EQ(Push(chunk).error_code(), grpc::StatusCode::NOT_FOUND) << "clone 4 has no exchange";
  EXPECT_EQ(handler_.chunk_calls(), 0);
  chunk.mutable_key()->set_worker_id(3);
  EXPECT_TRUE(Push(chunk).ok());
}

TEST_F(SharedChunksServerTest, ReportsABadChecksumInSharedMemory) {
  const auto exchange = OpenedBy(0);
  const Payload payload = MakePayload(5000, 1);
  ps::PushChunk chunk = ChunkHeader(0);
  chunk.set_crc32c(Crc32c(payload.data, payload.size_bytes) + 1);
  *chunk.mutable_shared() = PutInto(exchange, payload);
  const grpc::Status status = Push(chunk);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS) << status.error_message();
  EXPECT_EQ(handler_.chunk_calls(), 0);
}

TEST_F(SharedChunksServerTest, RefusesAPushOfAnUnpublishedMessage) {
  const auto exchange = OpenedBy(0);
  ps::PushChunk chunk = ChunkHeader(0);
  *chunk.mutable_shared() = PutInto(exchange, MakePayload(5000, 1));
  chunk.mutable_shared()->set_number(1);
  EXPECT_EQ(Push(chunk).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  chunk.mutable_shared()->set_number(0);
  chunk.mutable_shared()->set_size_bytes(kChunkBytes + 1);
  EXPECT_EQ(Push(chunk).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(handler_.chunk_calls(), 0);
}

TEST_F(SharedChunksServerTest, RefusesAPushWithTwoPayloads) {
  const auto exchange = OpenedBy(0);
  const Payload payload = MakePayload(5000, 1);
  ps::PushChunk chunk = ChunkHeader(0);
  chunk.set_crc32c(Crc32c(payload.data, payload.size_bytes));
  *chunk.mutable_shared() = PutInto(exchange, payload);
  chunk.set_payload(ToString(payload));
  EXPECT_EQ(Push(chunk).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(handler_.chunk_calls(), 0);
}

TEST_F(SharedChunksServerTest, RefusesSharedMemoryForOtherHostsAndWithoutAGrant) {
  ps::OpenSharedMemoryReply reply;
  ps::OpenSharedMemoryRequest request = OpenRequest(0);
  request.set_host("another host");
  EXPECT_EQ(Open(request, &reply).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(handler_.opened(), 0);
  request = OpenRequest(0);
  request.clear_grant();
  EXPECT_EQ(Open(request, &reply).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(reply.token(), 0);
}

TEST_F(SharedChunksServerTest, LargeShardsArriveWholeInBothDirections) {
  const std::string weights = ToString(handler_.weights = MakePayload(40 * kChunkBytes + 4, 3));
  const auto client = MakeGrpcPsClient(server_->address());
  for (int round = 0; round < 3; ++round) {
    PulledBytes pulled;
    ASSERT_TRUE(client->Pull(GrantedPull(), kTimeout, pulled.sink()).ok());
    EXPECT_EQ(pulled.chunks, 44);
    EXPECT_TRUE(pulled.bytes == weights) << round;
    std::string sent;
    const absl::Status pushed = PushChunks(client.get(), 41, &sent);
    EXPECT_TRUE(pushed.ok()) << pushed;
    EXPECT_TRUE(handler_.Pushed() == sent) << round;
  }
  EXPECT_EQ(handler_.opened(), 1);
}

TEST_F(SharedChunksServerTest, APullAfterAnAbandonedOneIsCorrect) {
  const std::string weights = ToString(handler_.weights = MakePayload(20 * kChunkBytes, 3));
  const auto client = MakeGrpcPsClient(server_->address());
  for (int given_up_after : {0, 1, 5, 17, 2}) {
    PulledBytes part;
    const auto sink = [&](const ps::PullChunk& header, size_t size_bytes) -> absl::StatusOr<char*> {
      if (part.chunks == given_up_after) return absl::AbortedError("enough");
      return part.sink()(header, size_bytes);
    };
    EXPECT_EQ(client->Pull(GrantedPull(), kTimeout, sink), absl::AbortedError("enough"));
    for (int i = 0; i < 2; ++i) {
      PulledBytes whole;
      const absl::Status status = client->Pull(GrantedPull(), kTimeout, whole.sink());
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_TRUE(whole.bytes == weights) << given_up_after;
    }
  }
}

// Only one pull of a client uses the ring at a time, because the messages of two pulls would
// release each other.
TEST_F(SharedChunksServerTest, APullDuringAnotherPullLeavesBothCorrect) {
  const std::string weights = ToString(handler_.weights);
  const auto client = MakeGrpcPsClient(server_->address());
  PulledBytes outer;
  const auto sink = [&](const ps::PullChunk& header, size_t size_bytes) -> absl::StatusOr<char*> {
    PulledBytes inner;
    const absl::Status status = client->Pull(GrantedPull(), kTimeout, inner.sink());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(inner.bytes == weights);
    return outer.sink()(header, size_bytes);
  };
  const absl::Status status = client->Pull(GrantedPull(), kTimeout, sink);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(outer.bytes == weights);
}

TEST_F(SharedChunksServerTest, AnEmptyShardNeedsNoSharedMemory) {
  handler_.weights = Payload();
  const auto client = MakeGrpcPsClient(server_->address());
  PulledBytes pulled;
  const absl::Status status = client->Pull(GrantedPull(), kTimeout, pulled.sink());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(pulled.chunks, 1);
  auto stream = client->StartPush(kTimeout);
  ASSERT_TRUE(stream->Send(ChunkHeader(0), Payload()).ok());
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(SharedChunksServerTest, AfterARestartAPushGoesThroughTheConnection) {
  const auto client = MakeGrpcPsClient(server_->address());
  PulledBytes pulled;
  ASSERT_TRUE(client->Pull(GrantedPull(), kTimeout, pulled.sink()).ok());
  Restart(client.get());

  std::string sent;
  absl::Status status = PushChunks(client.get(), 3, &sent);
  EXPECT_TRUE(absl::IsUnavailable(status)) << "the client may retry: " << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "no such shared memory")) << status;
  EXPECT_EQ(handler_.chunk_calls(), 0);
  sent.clear();
  status = PushChunks(client.get(), 3, &sent);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(handler_.Pushed(), sent);

  // The client asks for shared memory again in the next epoch.
  ps::PullRequest request = GrantedPull();
  request.set_epoch(1);
  PulledBytes again;
  ASSERT_TRUE(client->Pull(request, kTimeout, again.sink()).ok());
  EXPECT_EQ(again.bytes, pulled.bytes);
  EXPECT_EQ(handler_.opened(), 2);
  sent.clear();
  EXPECT_TRUE(PushChunks(client.get(), 4, &sent).ok());
  EXPECT_EQ(handler_.Pushed(), sent);
}

TEST_F(SharedChunksServerTest, APullAfterARestartGoesThroughTheConnection) {
  const auto client = MakeGrpcPsClient(server_->address());
  PulledBytes before, after;
  ASSERT_TRUE(client->Pull(GrantedPull(), kTimeout, before.sink()).ok());
  Restart(client.get());
  const absl::Status status = client->Pull(GrantedPull(), kTimeout, after.sink());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(after.bytes, before.bytes);
}

// A server of generated code that offers shared memory and checks the messages that it gets.
class PlainSharedServer final : public ps::ParameterServer::Service {
 public:
  grpc::Status OpenSharedMemory(grpc::ServerContext*, const ps::OpenSharedMemoryRequest*,
                                ps::OpenSharedMemoryReply* reply) override {
    ++opened;
    exchange = *ChunkExchange::Create(4 * kChunkBytes);
    exchange->Describe(reply);
    return grpc::Status::OK;
  }
  grpc::Status Push(grpc::ServerContext*, grpc::ServerReader<ps::PushChunk>* reader,
                    ps::PushReply*) override {
    for (ps::PushChunk chunk; reader->Read(&chunk);) {
      if (chunk.has_shared()) {
        ++shared_pushes;
        EXPECT_TRUE(chunk.payload().empty());
        const auto bytes = TakeFrom(exchange.get(), chunk.shared());
        EXPECT_TRUE(bytes.ok()) << bytes.status();
        if (bytes.ok()) chunk.set_payload(*bytes);
      }
      EXPECT_EQ(Crc32c(chunk.payload()), chunk.crc32c());
      pushed += chunk.payload();
    }
    return push_status;
  }
  // Sends the chunk that the test has prepared.
  grpc::Status Pull(grpc::ServerContext*, const ps::PullRequest* request,
                    grpc::ServerWriter<ps::PullChunk>* writer) override {
    asked_token = request->shared_memory();
    ps::PullChunk chunk;
    chunk.set_crc32c(Crc32c(weights));
    if (asked_token == 0) {
      chunk.set_payload(weights);
    } else {
      *chunk.mutable_shared() = PutInto(exchange, Payload{nullptr, weights.data(), weights.size()});
    }
    if (change) change(&chunk);
    writer->Write(chunk);
    return grpc::Status::OK;
  }

  std::string weights = "weights of this version";
  std::function<void(ps::PullChunk*)> change;
  grpc::Status push_status;
  int opened = 0;
  int shared_pushes = 0;
  uint64_t asked_token = 0;
  std::string pushed;
  std::shared_ptr<ChunkExchange> exchange;
};

class SharedChunksClientTest : public testing::Test {
 protected:
  void SetUp() override {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
    client_ = MakeGrpcPsClient(address_);
  }
  absl::Status Pull() {
    pulled_ = PulledBytes();
    return client_->Pull(GrantedPull(), kTimeout, pulled_.sink());
  }

  PlainSharedServer service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::unique_ptr<PsClient> client_;
  PulledBytes pulled_;
};

TEST_F(SharedChunksClientTest, PushedPayloadsLieInTheRingAndNotInTheMessages) {
  std::string sent;
  ASSERT_TRUE(PushChunks(client_.get(), 2, &sent).ok());
  EXPECT_EQ(service_.shared_pushes, 0) << "there is no exchange before the first pull";
  ASSERT_TRUE(Pull().ok());
  EXPECT_EQ(service_.opened, 1);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(PushChunks(client_.get(), 3, &sent).ok());
  EXPECT_EQ(service_.shared_pushes, 6);
  EXPECT_EQ(service_.pushed, sent);
}

TEST_F(SharedChunksClientTest, APullNamesItsExchange) {
  ASSERT_TRUE(Pull().ok());
  EXPECT_EQ(service_.asked_token, service_.exchange->token());
  EXPECT_EQ(pulled_.bytes, service_.weights);
}

TEST_F(SharedChunksClientTest, AConcurrentPushGoesThroughTheConnection) {
  ASSERT_TRUE(Pull().ok());
  const auto idle = client_->StartPush(kTimeout);
  std::string sent;
  EXPECT_TRUE(PushChunks(client_.get(), 3, &sent).ok());
  EXPECT_EQ(service_.shared_pushes, 0);
  EXPECT_EQ(service_.pushed, sent);
}

TEST_F(SharedChunksClientTest, DoesNotAskForSharedMemoryIfDisabled) {
  TransportOptions options;
  options.shared_memory = false;
  client_ = MakeGrpcPsClient(address_, options);
  std::string sent;
  ASSERT_TRUE(Pull().ok());
  EXPECT_EQ(pulled_.bytes, service_.weights);
  EXPECT_EQ(service_.asked_token, 0);
  ASSERT_TRUE(PushChunks(client_.get(), 2, &sent).ok());
  EXPECT_EQ(service_.opened, 0);
  EXPECT_EQ(service_.shared_pushes, 0);
  EXPECT_EQ(service_.pushed, sent);
}

TEST_F(SharedChunksClientTest, ABadChecksumInSharedMemoryIsDataLoss) {
  service_.change = [](ps::PullChunk* chunk) { chunk->set_crc32c(chunk->crc32c() + 1); };
  const absl::Status status = Pull();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::BAD_CHECKSUM);
}

TEST_F(SharedChunksClientTest, AMissingMessageEndsThePull) {
  service_.change = [](ps::PullChunk* chunk) {
    chunk->mutable_shared()->set_number(chunk->shared().number() + 1);
  };
  EXPECT_TRUE(absl::IsInvalidArgument(Pull()));
  service_.change = [](ps::PullChunk* chunk) { chunk->mutable_shared()->set_token(1); };
  EXPECT_TRUE(absl::IsInvalidArgument(Pull()));
  service_.change = nullptr;
  EXPECT_TRUE(Pull().ok());
}

TEST_F(SharedChunksClientTest, APayloadInBothPlacesIsAnErrorOfThePull) {
  service_.change = [](ps::PullChunk* chunk) { chunk->set_payload("and another"); };
  const absl::Status status = Pull();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_EQ(pulled_.chunks, 0);
}

TEST_F(SharedChunksClientTest, UnrequestedSharedMemoryIsAnErrorOfThePull) {
  TransportOptions options;
  options.shared_memory = false;
  client_ = MakeGrpcPsClient(address_, options);
  service_.change = [](ps::PullChunk* chunk) {
    chunk->clear_payload();
    chunk->mutable_shared()->set_size_bytes(4);
  };
  EXPECT_EQ(Pull().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(pulled_.chunks, 0);
}

// Only an exchange that the server does not know makes the client retry.
TEST_F(SharedChunksClientTest, ReturnsOtherRefusalsOfAPushUnchanged) {
  std::string sent;
  service_.push_status = grpc::Status(grpc::StatusCode::NOT_FOUND, "no such step");
  EXPECT_TRUE(absl::IsNotFound(PushChunks(client_.get(), 1, &sent)))
      << "the push did not use shared memory";
  ASSERT_TRUE(Pull().ok());
  service_.push_status = grpc::Status(grpc::StatusCode::DATA_LOSS, "checksum");
  EXPECT_TRUE(absl::IsDataLoss(PushChunks(client_.get(), 1, &sent)));
  EXPECT_EQ(service_.shared_pushes, 1);
  service_.push_status = grpc::Status::CANCELLED;
  EXPECT_TRUE(absl::IsUnavailable(PushChunks(client_.get(), 1, &sent)))
      << "a server that shuts down ends its calls so, and another one may go on with the job";
  service_.push_status = grpc::Status::OK;
  EXPECT_TRUE(PushChunks(client_.get(), 1, &sent).ok());
  EXPECT_EQ(service_.shared_pushes, 3) << "the client keeps using the exchange";
}

}  // namespace
}  // namespace pushpull
