// Tests each limit with a real server: a peer that breaks it is disconnected, and others are served
// meanwhile.
#include "common/wire/grpc/server_limits.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/sharding.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "protos/parameter_server.grpc.pb.h"
#include "ps_server/transport/descriptor_budget.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "tests/ps_server/transport/raw_peer.h"
#include "tests/ps_server/transport/slow_link.h"
#include "tests/testkit/fake_ps_handler.h"
#include "tests/testkit/pulled_bytes.h"

namespace pushpull {
namespace {

std::string Literal(const std::string& name, const std::string& value) {
  return absl::StrCat(std::string(1, '\0'), std::string(1, static_cast<char>(name.size())), name,
                      std::string(1, static_cast<char>(value.size())), value);
}

std::string RequestHeaders(const std::string& method) {
  return Literal(":method", "POST") + Literal(":scheme", "http") +
         Literal(":path", "/ps.ParameterServer/" + method) + Literal(":authority", "x") +
         Literal("te", "trailers") + Literal("content-type", "application/grpc");
}

// The beginning of a header field that announces a value of 100 MiB (in HPACK: 127, then the rest
// as a varint). The test sends the value in pieces.
std::string HeaderOf100Mebibytes() {
  return Http2Frame(
      1, 0, 1,
      RequestHeaders("GetStatus") + std::string(1, '\0') + "\x03x-a" + "\x7f\x81\xff\xff\x31");
}

class ServerLimitsTest : public testing::Test {
 protected:
  void Start() {
    auto server = StartGrpcPsServer("127.0.0.1:0", &handler_, options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = MakeGrpcPsClient(server_->address());
    ExpectServing();
  }
  void ExpectServing() {
    const absl::Status status = client_->GetStatus({}, kTimeout).status();
    EXPECT_TRUE(status.ok()) << status;
  }

  FakePsHandler handler_;
  TransportOptions options_;
  std::unique_ptr<GrpcPsServer> server_;
  std::unique_ptr<PsClient> client_;
};

TEST_F(ServerLimitsTest, RefusesConnectionsBeyondTheLimit) {
  options_.limits.max_connections = 8;
  options_.limits.max_connections_per_peer = 8;
  options_.limits.handshake = absl::Hours(1);  // so that it does not end the refused connection
  Start();
  // A connection that has made a call is never replaced by a new one.
  std::vector<std::unique_ptr<PsClient>> clients;
  for (int i = 0; i < 7; ++i) {
    clients.push_back(MakeGrpcPsClient(server_->address()));
    ASSERT_TRUE(clients.back()->GetStatus({}, kTimeout).ok());
  }
  RawPeer refused(server_->address());
  EXPECT_TRUE(refused.AwaitEnd());
  ExpectServing();
  // Closing a connection frees its place at once.
  clients.clear();
  for (int attempt = 0; attempt < 600; ++attempt) {
    if (MakeGrpcPsClient(server_->address())->GetStatus({}, kTimeout).ok()) return;
    absl::SleepFor(absl::Milliseconds(100));
  }
  FAIL() << "the closed connections still count";
}

// A small message could become one of a gigabyte in the server's memory.
TEST_F(ServerLimitsTest, CompressedMessagesAreRefused) {
  Start();
  const auto channel = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  const auto stub = ps::ParameterServer::NewStub(channel);
  ps::StatusRequest request;
  request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(
      1000, std::string(32 << 10, '\0'));
  for (const auto algorithm : {GRPC_COMPRESS_NONE, GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    ps::StatusReply reply;
    const grpc::Status status = stub->GetStatus(&context, request, &reply);
    EXPECT_EQ(status.error_code(), algorithm == GRPC_COMPRESS_NONE
                                       ? grpc::StatusCode::OK
                                       : grpc::StatusCode::UNIMPLEMENTED)
        << status.error_message();
  }
  ExpectServing();
}

TEST_F(ServerLimitsTest, AnUnfinishedHandshakeEnds) {
  options_.limits.handshake = absl::Seconds(1);
  Start();
  RawPeer silent(server_->address());
  RawPeer slow(server_->address());
  slow.Send(std::string(kHttp2Preface).substr(0, 5));
  EXPECT_TRUE(silent.AwaitEnd());
  EXPECT_TRUE(slow.AwaitEnd());
  ExpectServing();
}

TEST_F(ServerLimitsTest, AConnectionWithoutCallsEnds) {
  options_.limits.connection_idle = absl::Seconds(1);
  Start();
  RawPeer peer(server_->address());
  peer.Send(kHttp2Preface + Http2Frame(4, 0, 0, ""));
  EXPECT_TRUE(peer.AwaitEnd());
  ExpectServing();
}

TEST_F(ServerLimitsTest, CutsAnEndlessHeader) {
  options_.limits.max_undelivered_bytes = 1 << 20;
  Start();
  RawPeer peer(server_->address());
  ASSERT_TRUE(peer.Greet());
  ASSERT_TRUE(peer.Send(HeaderOf100Mebibytes()));
  const std::string piece = Http2Frame(9, 0, 1, std::string(16384, 'a'));
  int64_t sent = 0;
  while (sent < (int64_t{100} << 20) && peer.Send(piece)) sent += 16384;
  // The connection ends soon after the limit and not at 100 MiB.
  EXPECT_LT(sent, int64_t{100} << 20);
  EXPECT_TRUE(peer.AwaitEnd());
  ExpectServing();
}

TEST_F(ServerLimitsTest, TheNextClientOfABarredHostWaitsAndIsServed) {
  options_.limits.block_time = absl::Seconds(2);
  Start();
  RawPeer peer(server_->address());
  ASSERT_TRUE(peer.Greet());
  const absl::Time before_the_offence = absl::Now();
  ASSERT_TRUE(peer.Send(HeaderOf100Mebibytes()));
  while (peer.Send(Http2Frame(9, 0, 1, std::string(16384, 'a')))) {
  }
  const absl::Status status =
      MakeGrpcPsClient(server_->address())->GetStatus({}, kTimeout).status();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GE(absl::Now() - before_the_offence, options_.limits.block_time);
  ExpectServing();
}

TEST_F(ServerLimitsTest, HoldsAClientThatSendsMuchBeforeTheAnswer) {
  options_.limits.tarpit = absl::Seconds(3);
  Start();
  std::string windows;
  while (windows.size() < 20000) windows += Http2Frame(8, 0, 0, std::string("\0\0\0\x01", 4));
  RawPeer patient(server_->address());
  ASSERT_TRUE(patient.Greet());
  ASSERT_TRUE(patient.Send(windows));
  RawPeer hasty(server_->address());
  const absl::Time sent = absl::Now();
  ASSERT_TRUE(hasty.Send(kHttp2Preface + Http2Frame(4, 0, 0, "") + windows));
  EXPECT_TRUE(MakeGrpcPsClient(server_->address())->GetStatus({}, kTimeout).ok());
  EXPECT_TRUE(hasty.AwaitEnd());
  EXPECT_GT(absl::Now() - sent, absl::Seconds(2));
  EXPECT_FALSE(patient.AwaitEnd(absl::Seconds(1)));
  ExpectServing();
}

TEST_F(ServerLimitsTest, TooMuchMetadataEndsTheCall) {
  Start();
  auto channel = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  const auto stub = ps::ParameterServer::NewStub(channel);
  for (const size_t bytes : {size_t{1000}, size_t{20000}}) {
    grpc::ClientContext context;
    context.AddMetadata("x-large", std::string(bytes, 'm'));
    ps::StatusReply reply;
    const grpc::Status status = stub->GetStatus(&context, {}, &reply);
    EXPECT_EQ(status.ok(), bytes < 8000) << bytes << ": " << status.error_message();
  }
}

TEST_F(ServerLimitsTest, RefusesARequestThatIsLongerThanItsMethodNeeds) {
  options_.limits.max_request_bytes = 10000;
  handler_.hold_pulls = true;
  Start();
  const std::string text(20000, 'x');
  ps::HeartbeatRequest heartbeat;
  heartbeat.mutable_progress()->set_phase(text);
  absl::Status status = client_->Heartbeat(heartbeat, kTimeout).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  ps::OpenSharedMemoryRequest open;
  open.set_run_id(text);
  auto channel = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  {
    grpc::ClientContext context;
    ps::OpenSharedMemoryReply reply;
    EXPECT_EQ(ps::ParameterServer::NewStub(channel)
                  ->OpenSharedMemory(&context, open, &reply)
                  .error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  ps::PullRequest pull;
  for (uint32_t chunk = 0; chunk < 20000; ++chunk) pull.add_float32_chunks(chunk);
  status = client_->Pull(pull, kTimeout, PulledBytes().sink());
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(handler_.held_pulls(), 0u);

  // These name every variable of a model.
  ps::RegisterRequest announced;
  announced.add_variables()->set_name(text);
  status = client_->Register(announced, kTimeout).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << "the answer of the handler: " << status;
  ps::DeclareRequest declared;
  declared.set_values(text);
  status = client_->DeclareVariables(declared, kTimeout).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << "the answer of the handler: " << status;
  ExpectServing();
}

// The messages take seconds, in which the connections are examined many times. Each of them is the
// first one of its connection.
TEST_F(ServerLimitsTest, ASlowNetworkDeliversTheLongestRequests) {
  Start();
  SlowLink link(server_->address());
  ps::DeclareRequest declared;
  declared.set_values(std::string(512 << 10, 'v'));
  absl::Status status =
      MakeGrpcPsClient(link.address())->DeclareVariables(declared, kTimeout).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << "the answer of the handler: " << status;
  ps::RegisterRequest announced;
  announced.add_variables()->set_name(std::string(1 << 20, 'n'));
  status = MakeGrpcPsClient(link.address())->Register(announced, kTimeout).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << "the answer of the handler: " << status;
}

TEST_F(ServerLimitsTest, DoesNotWaitForAMessageOfAGigabyte) {
  options_.limits.stalled_message = absl::Seconds(1);
  Start();
  RawPeer peer(server_->address());
  ASSERT_TRUE(peer.Greet());
  ASSERT_TRUE(peer.Send(Http2Frame(1, 4, 1, RequestHeaders("Push")) +
                        Http2Frame(0, 0, 1, std::string("\0\x40\0\0\0", 5))));
  for (int i = 0; i < 8; ++i) peer.Send(Http2Frame(0, 0, 1, std::string(16000, 'x')));
  EXPECT_TRUE(peer.AwaitEnd());
  ExpectServing();
}

TEST_F(ServerLimitsTest, AStalledPushEnds) {
  options_.limits.push_idle = absl::Seconds(1);
  Start();
  auto stream = client_->StartPush(kTimeout);
  ps::PushChunk header;
  ASSERT_TRUE(stream->Send(header, MakePayload(1000, 1)).ok());
  handler_.AwaitChunks(1);
  const absl::Time begin = absl::Now();
  absl::Status sent;
  while (sent.ok() && absl::Now() - begin < kTimeout) {
    absl::SleepFor(absl::Milliseconds(1500));
    sent = stream->Send(header, MakePayload(1000, 1));
  }
  const absl::Status status = stream->Finish().status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_NE(status.message().find("made no progress"), std::string::npos) << status;
  ExpectServing();
}

// A chunk of a slow network comes late, and the last step of a slow job is decided late. On a busy
// machine the time between two chunks may be too short; the loop then tries a longer one.
TEST_F(ServerLimitsTest, APushMayLastAndWaitForItsAnswerLongerThanForAChunk) {
  handler_.hold_pushes = true;
  absl::Status status;
  for (absl::Duration idle = absl::Seconds(1); idle < absl::Seconds(10); idle *= 2) {
    options_.limits.push_idle = idle;
    Start();
    auto stream = client_->StartPush(3 * idle);
    for (int i = 0; i < 5; ++i) {
      if (i > 0) absl::SleepFor(0.4 * idle);
      if (!stream->Send(ps::PushChunk(), MakePayload(1000, 1)).ok()) break;
    }
    status = stream->Finish().status();
    if (!absl::StrContains(status.message(), "made no progress")) break;
  }
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "nothing was sent or received"))
      << "the client ends the call, not the server: " << status;
}

// gRPC receives ahead until the flow-control window of the push is full.
TEST_F(ServerLimitsTest, APushThatTheHandlerTakesSlowlyIsNotCut) {
  class SlowHandler final : public FakePsHandler {
   public:
    absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload) override {
      if (header.chunk() == 1) absl::SleepFor(absl::Seconds(1));
      return FakePsHandler::PushChunk(header, payload);
    }
  };
  SlowHandler handler;
  const auto server = StartGrpcPsServer("127.0.0.1:0", &handler, options_);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto client = MakeGrpcPsClient((*server)->address());
  auto stream = client->StartPush(kTimeout);
  ps::PushChunk header;
  for (uint32_t chunk = 0; chunk < 12; ++chunk) {
    header.set_chunk(chunk);
    ASSERT_TRUE(stream->Send(header, MakePayload(Sharding::kChunkBytes, chunk)).ok()) << chunk;
  }
  const absl::Status status = stream->Finish().status();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ServerLimitsTest, AWaitingPullEndsAtTheLimitOfCalls) {
  options_.limits.longest_call = absl::Seconds(1);
  handler_.hold_pulls = true;
  Start();
  const absl::Status status = client_->Pull({}, kTimeout, PulledBytes().sink());
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  handler_.AwaitCancelledPull();
  // A call that the handler never answers ends in the same way.
  EXPECT_TRUE(absl::IsDeadlineExceeded(client_->Heartbeat({}, kTimeout).status()));
}

TEST_F(ServerLimitsTest, AnUnreadPullReleasesTheWeights) {
  options_.limits.pull_stalled = absl::Seconds(1);
  // More than fits into gRPC's windows and the sockets' buffers, which grow on a slow machine.
  handler_.weights = MakePayload(96 * Sharding::kChunkBytes, 3);
  Start();
  const std::weak_ptr<const void> weights = handler_.weights.owner;
  absl::Notification receiving;
  absl::Notification read_on;
  const auto note_receiving = [&] {
    if (!receiving.HasBeenNotified()) receiving.Notify();
  };
  absl::Status status;
  std::thread reader([&] {
    PulledBytes pulled;
    status = client_->Pull({}, kTimeout, [&](const ps::PullChunk& header, size_t size_bytes) {
      note_receiving();
      read_on.WaitForNotification();
      return pulled.sink()(header, size_bytes);
    });
    note_receiving();  // in case the call has failed before
  });
  receiving.WaitForNotification();
  handler_.weights = Payload();
  const absl::Time begin = absl::Now();
  while (!weights.expired() && absl::Now() - begin < kTimeout) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(weights.expired());
  read_on.Notify();
  reader.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << "the client may retry: " << status;
}

// The limit is that of one chunk. On a busy machine it may be too short; the loop then tries a
// longer one.
TEST_F(ServerLimitsTest, APullThatTheClientTakesSlowlyGoesOn) {
  handler_.weights = MakePayload(96 * Sharding::kChunkBytes, 3);
  absl::Status status = absl::UnavailableError("");
  for (absl::Duration stalled = absl::Milliseconds(500);
       !status.ok() && stalled < absl::Seconds(10); stalled *= 2) {
    options_.limits.pull_stalled = stalled;
    Start();
    PulledBytes pulled;
    status = client_->Pull({}, kTimeout, [&](const ps::PullChunk& header, size_t size_bytes) {
      absl::SleepFor(stalled / 40);
      return pulled.sink()(header, size_bytes);
    });
  }
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ServerLimitsTest, ManyCancelledCallsEndTheConnection) {
  options_.limits.max_cancelled_calls = 20;
  options_.limits.block_time = absl::Milliseconds(1);
  handler_.hold_pulls = true;
  handler_.hold_pushes = true;
  Start();
  for (const char* method : {"Pull", "Push", "Heartbeat"}) {
    RawPeer peer(server_->address());
    bool open = peer.Greet();
    EXPECT_TRUE(open) << method;
    for (uint32_t stream = 1; open && stream < 20000; stream += 2) {
      open = peer.Send(Http2Frame(1, 4, stream, RequestHeaders(method)) +
                       Http2Frame(0, 1, stream, std::string(5, '\0')));
      absl::SleepFor(absl::Milliseconds(2));
      open = open && peer.Send(Http2Frame(3, 0, stream, std::string("\0\0\0\x08", 4)));
    }
    EXPECT_FALSE(open) << method;
    EXPECT_TRUE(peer.AwaitEnd()) << method;
    ExpectServing();
  }
}

TEST_F(ServerLimitsTest, NormalBulkTrafficStaysWithinAllLimits) {
  handler_.weights = MakePayload(20 * Sharding::kChunkBytes, 3);
  Start();
  for (int round = 0; round < 5; ++round) {
    auto stream = client_->StartPush(kTimeout);
    ps::PushChunk header;
    for (uint32_t chunk = 0; chunk < 40; ++chunk) {
      header.set_chunk(chunk);
      ASSERT_TRUE(stream->Send(header, MakePayload(Sharding::kChunkBytes, chunk)).ok());
    }
    ASSERT_TRUE(stream->Finish().ok());
    ASSERT_TRUE(client_->Pull({}, kTimeout, PulledBytes().sink()).ok());
  }
}

TEST(DescriptorBudgetTest, RaisesTheLimitOrUsesTheAllowedOne) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 300;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(FitConnections(100, 1).value(), 100);
  rlimit raised{};
  getrlimit(RLIMIT_NOFILE, &raised);
  EXPECT_GE(raised.rlim_cur, 456u);
  const int64_t most = static_cast<int64_t>(before.rlim_max);
  if (before.rlim_max != RLIM_INFINITY && most < (int64_t{1} << 30)) {
    EXPECT_EQ(FitConnections(1 << 30, 2).value(), ConnectionsWithin(most, 1 << 30, 2).value());
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(DescriptorBudgetTest, AServerWithFewDescriptorsHasFewConnections) {
  EXPECT_EQ(ConnectionsWithin(2000, 512, 1).value(), 512);
  EXPECT_EQ(ConnectionsWithin(1024, 512, 1).value(), (1024 - 256) / 2);
  EXPECT_EQ(ConnectionsWithin(1024, 512, 2).value(), (1024 - 256) / 4);
  EXPECT_EQ(ConnectionsWithin(128, 512, 1).value(), 32);
  EXPECT_EQ(ConnectionsWithin(64, 512, 1).value(), 8);
  EXPECT_EQ(ConnectionsWithin(52, 512, 1).value(), 2);
  for (const auto& [allowed, listeners, needed] :
       {std::tuple{51, 1, 52}, {0, 1, 52}, {300, 40, 520}}) {
    const absl::Status refused = ConnectionsWithin(allowed, 512, listeners).status();
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                ::testing::HasSubstr(absl::StrCat("needs at least ", needed)));
  }
}

TEST(DescriptorBudgetTest, OneHostCannotTakeAllOfFewConnections) {
  ServerLimits limits;
  limits.max_connections = 512;
  limits.max_connections_per_peer = 256;
  for (const auto& [connections, per_peer] :
       {std::pair{512, 256}, {511, 255}, {64, 32}, {3, 1}, {1, 1}}) {
    const ServerLimits fit = WithConnections(limits, connections);
    EXPECT_EQ(fit.max_connections, connections);
    EXPECT_EQ(fit.max_connections_per_peer, per_peer) << connections;
  }
  limits.max_connections_per_peer = 8;
  EXPECT_EQ(WithConnections(limits, 64).max_connections_per_peer, 8);
}

}  // namespace
}  // namespace pushpull
