// What the server does with every request before the handler sees it, and that it needs the request
// no more when the handler answers late.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "google/protobuf/message.h"
#include "gtest/gtest.h"

#include "common/wire/grpc/grpc_ps_client.h"
#include "common/wire/shared_memory/sealed_memory.h"
#include "protos/parameter_server.grpc.pb.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "tests/testkit/fake_ps_handler.h"
#include "tests/testkit/pulled_bytes.h"
#include "tests/testkit/test_peer_secret.h"

namespace pushpull {
namespace {

void AddUnknownField(google::protobuf::Message* message) {
  message->GetReflection()->MutableUnknownFields(message)->AddLengthDelimited(500, "from a peer");
}

// Remembers the messages as they arrive.
class RecordingHandler final : public FakePsHandler {
 public:
  void Heartbeat(const ps::HeartbeatRequest& request, Done<ps::HeartbeatReply> done) override {
    Record(request);
    done(ps::HeartbeatReply());
  }
  void Apply(const ps::ApplyRequest& request, Done<ps::ApplyReply> done) override {
    Record(request);
    done(ps::ApplyReply());
  }
  absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload) override {
    Record(header);
    return FakePsHandler::PushChunk(header, payload);
  }
  CancelFn Pull(const ps::PullRequest& request, Done<PullSnapshot> done) override {
    ps::PullRequest sent = request;
    sent.clear_shared_memory();  // the client sets it
    Record(sent);
    return FakePsHandler::Pull(request, std::move(done));
  }

  // The serialized messages, in the order of their arrival.
  std::vector<std::string> messages() const {
    absl::MutexLock lock(&mutex_);
    return messages_;
  }

 private:
  void Record(const google::protobuf::Message& message) {
    absl::MutexLock lock(&mutex_);
    messages_.push_back(message.SerializeAsString());
  }

  mutable absl::Mutex mutex_;
  std::vector<std::string> messages_ ABSL_GUARDED_BY(mutex_);
};

class RequestEntryTest : public testing::Test {
 protected:
  RequestEntryTest() {
    auto server = StartGrpcPsServer("127.0.0.1:0", &handler_, WithPeerSecret());
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = MakeGrpcPsClient(server_->address(), WithPeerSecret());
  }

  RecordingHandler handler_;
  std::unique_ptr<GrpcPsServer> server_;
  std::unique_ptr<PsClient> client_;
};

TEST_F(RequestEntryTest, TheHandlerSeesNoUnknownFields) {
  std::vector<std::string> expected;
  ps::HeartbeatRequest heartbeat;
  heartbeat.set_worker_id(3);
  heartbeat.mutable_progress()->set_phase("wait");
  expected.push_back(heartbeat.SerializeAsString());
  AddUnknownField(&heartbeat);
  AddUnknownField(heartbeat.mutable_progress());
  ASSERT_TRUE(client_->Heartbeat(heartbeat, kTimeout).ok());

  // The proof of an order covers its unknown fields.
  ps::ApplyRequest apply;
  apply.add_contributions()->set_samples(5);
  expected.push_back(apply.SerializeAsString());
  AddUnknownField(&apply);
  AddUnknownField(apply.mutable_contributions(0));
  const absl::Status applied = client_->Apply(apply, kTimeout).status();
  ASSERT_TRUE(applied.ok()) << applied;

  ps::PushChunk chunk = ChunkHeader(0);
  chunk.mutable_commit()->add_metrics()->set_name("Loss");
  expected.push_back(chunk.SerializeAsString());
  AddUnknownField(&chunk);
  AddUnknownField(chunk.mutable_commit()->mutable_metrics(0));
  auto stream = client_->StartPush(kTimeout);
  ASSERT_TRUE(stream->Send(chunk, Payload()).ok());
  const absl::Status pushed = stream->Finish().status();
  ASSERT_TRUE(pushed.ok()) << pushed;

  ps::PullRequest pull;
  pull.mutable_grant()->set_replica(2);
  expected.push_back(pull.SerializeAsString());
  AddUnknownField(&pull);
  AddUnknownField(pull.mutable_grant());
  const absl::Status pulled = client_->Pull(pull, kTimeout, PulledBytes().sink());
  ASSERT_TRUE(pulled.ok()) << pulled;

  EXPECT_EQ(handler_.messages(), expected);
}

// Answers OpenSharedMemory only when the test says so.
class LateHandler final : public FakePsHandler {
 public:
  void OpenSharedMemory(const ps::OpenSharedMemoryRequest&,
                        Done<ps::OpenSharedMemoryReply> done) override {
    absl::MutexLock lock(&mutex_);
    done_ = std::move(done);
  }
  void AwaitCall() {
    absl::MutexLock lock(&mutex_);
    const auto is_here = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return done_ != nullptr; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&is_here), kTimeout));
  }
  void Answer() {
    absl::MutexLock lock(&mutex_);
    ps::OpenSharedMemoryReply reply;
    reply.set_shard_bytes(4000);
    if (done_ != nullptr) done_(reply);
  }

 private:
  absl::Mutex mutex_;
  Done<ps::OpenSharedMemoryReply> done_ ABSL_GUARDED_BY(mutex_);
};

// AddressSanitizer notices a use of the request, which gRPC has freed.
TEST(LateAnswerTest, MayComeWhenTheCallIsOver) {
  LateHandler handler;
  auto server = StartGrpcPsServer("127.0.0.1:0", &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  ps::OpenSharedMemoryRequest request;
  request.set_host(HostIdentity());
  request.mutable_grant()->set_grant(1);
  grpc::Status status;
  std::thread caller([&] {
    const auto stub = ps::ParameterServer::NewStub(
        grpc::CreateChannel((*server)->address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    ps::OpenSharedMemoryReply reply;
    status = stub->OpenSharedMemory(&context, request, &reply);
  });
  handler.AwaitCall();
  (*server)->Stop(absl::ZeroDuration());
  caller.join();
  EXPECT_FALSE(status.ok());
  handler.Answer();
}

}  // namespace
}  // namespace pushpull
