#include "common/wire/security/peer_secret.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <sys/stat.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/wire/error_detail.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "protos/parameter_server.grpc.pb.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "tests/testkit/fake_ps_handler.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/test_folder.h"
#include "tests/testkit/test_peer_secret.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(60);

class PeerSecretFileTest : public testing::Test {
 protected:
  void Write(const std::string& text, mode_t mode) {
    ASSERT_TRUE(WriteFileAtomically(files_, path_, text).ok());
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }

  PosixFileSystem files_;
  const TestFolder folder_;
  const std::string path_ = folder_.path() + "/secret";
};

TEST_F(PeerSecretFileTest, ASavedSecretIsReadAgainByItsOwnerOnly) {
  const auto random = PeerSecret::Random();
  ASSERT_EQ(random->Save(files_, path_), absl::OkStatus());
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  const ps::ApplyRequest request;
  const std::string proof = random->ProveRequest("Apply", request);
  const auto read = PeerSecret::Read(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->ProveRequest("Apply", request), proof);
  EXPECT_NE(PeerSecret::Random()->ProveRequest("Apply", request), proof);
}

TEST(PeerSecretSaveTest, ASecretThatCannotBeSavedLeavesNoFile) {
  int64_t call = 0;
  for (;; ++call) {
    MemoryFileSystem files;
    ASSERT_EQ(files.MakeDirectory("/run"), absl::OkStatus());
    files.SetFault(FileFault{FileFault::Kind::kDiskFull, call});
    // The secret is read from the machine's files, so it is missing even if it could be written.
    EXPECT_FALSE(PeerSecret::Random()->Save(files, "/run/peer_secret").ok());
    if (files.calls() == call + 1) break;  // the removal has failed, which is the last call
    EXPECT_THAT(*files.List("/run"), testing::IsEmpty()) << "call " << call;
    ASSERT_LT(call, 100);
  }
  EXPECT_GE(call, 5) << "create, write, fsync, close and rename";
}

TEST_F(PeerSecretFileTest, ErrorsNameTheFileButNotTheSecret) {
  EXPECT_TRUE(absl::IsNotFound(PeerSecret::Read(path_).status()));
  Write("too short", 0600);
  absl::Status status = PeerSecret::Read(path_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("at least 16"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("too short")));
  for (const mode_t mode : {0644, 0640, 0604}) {
    Write("long enough for a secret", mode);
    status = PeerSecret::Read(path_).status();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("chmod 600"));
  }
  Write("  long enough for a secret\n", 0600);
  const auto read = PeerSecret::Read(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(
      (*read)->ProveRequest("Apply", ps::ApplyRequest()),
      (*PeerSecret::Create("long enough for a secret"))->ProveRequest("Apply", ps::ApplyRequest()));
}

TEST_F(PeerSecretFileTest, AFileThatCannotBeReadNowMayPass) {
  // Address 0 is not mapped, so Linux answers a read at the beginning of this file with EIO, as for
  // a broken disk.
  const absl::Status status = PeerSecret::Read("/proc/self/mem").status();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_TRUE(IsPassing(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/proc/self/mem"));
}

TEST(PeerSecretTest, AProofHoldsForOneMessageOnly) {
  const auto secret = *PeerSecret::Create("the secret of this job");
  const auto other = *PeerSecret::Create("the secret of that job");
  ps::ApplyRequest request;
  request.set_epoch(3);
  const std::string proof = secret->ProveRequest("Apply", request);
  EXPECT_EQ(proof.size(), 32u);
  EXPECT_TRUE(SameProof(proof, secret->ProveRequest("Apply", request)));
  EXPECT_FALSE(SameProof(proof, other->ProveRequest("Apply", request)));
  EXPECT_FALSE(SameProof(proof, secret->ProveRequest("MeasureNorm", request)));
  EXPECT_FALSE(SameProof("", ""));
  request.set_epoch(4);
  EXPECT_FALSE(SameProof(proof, secret->ProveRequest("Apply", request)));

  ps::ApplyReply reply;
  reply.set_version(5);
  const std::string answer = secret->ProveAnswer(proof, grpc::Status::OK, reply);
  EXPECT_NE(answer, proof);
  EXPECT_NE(answer, secret->ProveAnswer("another request", grpc::Status::OK, reply));
  const grpc::Status error(grpc::StatusCode::ABORTED, "why", "details");
  std::vector<std::string> answers = {
      answer, secret->ProveAnswer(proof, error, reply),
      secret->ProveAnswer(proof, grpc::Status(grpc::StatusCode::ABORTED, "whydetails"), reply),
      secret->ProveAnswer(proof, grpc::Status(grpc::StatusCode::CANCELLED, "why", "details"),
                          reply)};
  reply.set_version(6);
  answers.push_back(secret->ProveAnswer(proof, grpc::Status::OK, reply));
  for (size_t i = 0; i < answers.size(); ++i) {
    for (size_t k = 0; k < i; ++k) EXPECT_NE(answers[i], answers[k]) << i << " and " << k;
  }
}

// A coordinator's client, and a shard whose secret the test chooses.
class OrdersTest : public testing::Test {
 protected:
  void StartShard(const TransportOptions& options) {
    auto server = StartGrpcPsServer("127.0.0.1:0", &shard_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // Sends every kind of order and returns the results.
  std::vector<absl::Status> Order(const TransportOptions& options) {
    const auto client = MakeGrpcPsClient(server_->address(), options);
    ps::EndTaskRequest end;
    end.set_run_id("run");
    return {client->Restore({}, kTimeout).status(), client->MeasureNorm({}, kTimeout).status(),
            client->Apply({}, kTimeout).status(), client->Snapshot({}, kTimeout).status(),
            client->EndTask(end, kTimeout).status()};
  }

  FakePsHandler shard_;
  std::unique_ptr<GrpcPsServer> server_;
};

TEST_F(OrdersTest, AreObeyedOnlyWithTheRightSecret) {
  StartShard(WithPeerSecret());
  for (const absl::Status& status : Order(WithPeerSecret())) EXPECT_TRUE(status.ok()) << status;
  for (const absl::Status& status : Order({})) {
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  }
  for (const absl::Status& status : Order(WithPeerSecret("the secret of another job"))) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("has not proven"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("--peer_secret_file"));
  }
  // The state of a shard is not an order: anybody may ask for it, as --check_cluster does.
  EXPECT_TRUE(MakeGrpcPsClient(server_->address())->GetShardState({}, kTimeout).ok());
}

TEST_F(OrdersTest, AreRefusedByAShardWithoutASecret) {
  StartShard({});
  for (const absl::Status& status : Order({})) {
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  }
  EXPECT_TRUE(MakeGrpcPsClient(server_->address())->GetShardState({}, kTimeout).ok());
}

TEST_F(OrdersTest, AnswersOfAStrangerAreNotBelieved) {
  // The stranger knows the protocol and sends answers that would end the epoch, or that report
  // success.
  class Stranger final : public FakePsHandler {
   public:
    void Restore(const ps::RestoreRequest&, Done<ps::RestoreReply> done) override {
      ps::ErrorDetail detail;
      detail.set_kind(ps::ErrorDetail::EPOCH_CHANGED);
      detail.set_epoch(1000);
      done(MakeError(detail, "epoch 1000"));
    }
  };
  Stranger stranger;
  for (const TransportOptions& known : {TransportOptions(), WithPeerSecret("its own secret...")}) {
    auto server = StartGrpcPsServer("127.0.0.1:0", &stranger, known);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    const auto client = MakeGrpcPsClient(server_->address(), WithPeerSecret());
    const absl::Status state = client->GetShardState({}, kTimeout).status();
    EXPECT_TRUE(absl::IsUnavailable(state)) << state;
    for (const absl::Status& status : Order(WithPeerSecret())) {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::UNKNOWN) << status;
    }
  }
  server_.reset();  // the server uses the handler
}

// The coordinator would repeat a call that is UNAVAILABLE for ever.
TEST_F(OrdersTest, ASnapshotThatIsTooLongIsAnErrorOfItsCall) {
  class Talker final : public FakePsHandler {
   public:
    void Snapshot(const ps::SnapshotRequest&, Done<ps::SnapshotReply> done) override {
      ps::SnapshotReply reply;
      reply.set_marks(std::string(2000, 'm'));
      done(reply);
    }
  };
  Talker talker;
  auto server = StartGrpcPsServer("127.0.0.1:0", &talker, WithPeerSecret());
  ASSERT_TRUE(server.ok()) << server.status();
  TransportOptions options = WithPeerSecret();
  EXPECT_TRUE(
      MakeGrpcPsClient((*server)->address(), options)->Snapshot({}, kTimeout).status().ok());
  options.max_message_bytes = 1000;
  const auto client = MakeGrpcPsClient((*server)->address(), options);
  const absl::Status answer = client->Snapshot({}, kTimeout).status();
  EXPECT_TRUE(absl::IsResourceExhausted(answer)) << answer;
  EXPECT_THAT(std::string(answer.message()), HasSubstr("larger than max"));
}

// Other answers are short, so that such an error can only be somebody's answer without a proof. A
// job waits for a task that does not answer, but would end if one answered with an error.
TEST_F(OrdersTest, AStrangerCannotSayThatAnotherMessageIsTooLong) {
  class Stranger final : public FakePsHandler {
   public:
    void GetShardState(const ps::ShardStateRequest&, Done<ps::ShardStateReply> done) override {
      done(absl::ResourceExhaustedError("Received message larger than max (2000 vs. 1000)"));
    }
    void Apply(const ps::ApplyRequest&, Done<ps::ApplyReply> done) override {
      done(absl::ResourceExhaustedError("Received message larger than max (2000 vs. 1000)"));
    }
  };
  Stranger stranger;
  TransportOptions open;
  auto server = StartGrpcPsServer("127.0.0.1:0", &stranger, open);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto client = MakeGrpcPsClient((*server)->address(), WithPeerSecret());
  const absl::Status state = client->GetShardState({}, kTimeout).status();
  EXPECT_TRUE(absl::IsUnavailable(state)) << state;
  const absl::Status apply = client->Apply({}, kTimeout).status();
  EXPECT_TRUE(absl::IsUnavailable(apply)) << apply;
}

TEST_F(OrdersTest, AnAnswerHoldsForItsCallOnly) {
  StartShard(WithPeerSecret());
  const auto secret = WithPeerSecret().peer_secret;
  const auto stub = ps::ParameterServer::NewStub(
      grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  const auto proof_of_answer = [&](uint64_t nonce, const std::string& proof) {
    ps::ShardStateRequest request;
    request.set_nonce(nonce);
    grpc::ClientContext context;
    if (!proof.empty()) context.AddMetadata(kPeerProofKey, proof);
    ps::ShardStateReply reply;
    EXPECT_TRUE(stub->GetShardState(&context, request, &reply).ok());
    return FindPeerProof(context.GetServerTrailingMetadata());
  };
  ps::ShardStateRequest request;
  request.set_nonce(1);
  const std::string one = secret->ProveRequest("GetShardState", request);
  request.set_nonce(2);
  const std::string two = secret->ProveRequest("GetShardState", request);
  EXPECT_EQ(proof_of_answer(1, one).size(), 32u);
  EXPECT_NE(proof_of_answer(1, one), proof_of_answer(2, two));
  // An answer carries a proof only if its request carried a valid one.
  EXPECT_EQ(proof_of_answer(1, ""), "");
  EXPECT_EQ(proof_of_answer(1, two), "");
  EXPECT_EQ(proof_of_answer(1, std::string(32, 'x')), "");
}

}  // namespace
}  // namespace pushpull
