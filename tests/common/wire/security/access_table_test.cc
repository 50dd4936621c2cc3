// Checks which role may call which method against a second table, so that a change of the access
// rules has to be made twice.
#include "common/wire/security/access_table.h"

#include <google/protobuf/message.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/wire/grpc/byte_stream_call.h"
#include "common/wire/grpc/chunk_message.h"
#include "common/wire/security/transport_credentials.h"
#include "protos/parameter_server.grpc.pb.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "tests/common/wire/security/test_certificates.h"
#include "tests/testkit/fake_ps_handler.h"
#include "tests/testkit/warning_sink.h"

namespace pushpull {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

constexpr char kService[] = "/ps.ParameterServer/";

const std::map<std::string, std::string>& ExpectedRoles() {
  static const auto* const expected = new std::map<std::string, std::string>{
      {"/ps.ParameterServer/GetJob", "ps worker evaluator admin"},
      {"/ps.ParameterServer/GetStatus", "ps worker evaluator admin"},
      {"/ps.ParameterServer/DeclareVariables", "worker"},
      {"/ps.ParameterServer/Register", "worker"},
      {"/ps.ParameterServer/Heartbeat", "worker"},
      {"/ps.ParameterServer/Push", "worker"},
      {"/ps.ParameterServer/Commit", "worker"},
      {"/ps.ParameterServer/Pull", "worker"},
      {"/ps.ParameterServer/OpenSharedMemory", "worker"},
      {"/ps.ParameterServer/Checkpoint", "admin"},
      {"/ps.ParameterServer/Drain", "ps admin"},
      {"/ps.ParameterServer/Evict", "admin"},
      {"/ps.ParameterServer/Scale", "admin"},
      {"/ps.ParameterServer/GetShardState", "ps worker admin"},
      {"/ps.ParameterServer/Restore", "ps"},
      {"/ps.ParameterServer/MeasureNorm", "ps"},
      {"/ps.ParameterServer/Apply", "ps"},
      {"/ps.ParameterServer/Snapshot", "ps"},
      {"/ps.ParameterServer/EndTask", "ps"},
      {"/grpc.health.v1.Health/Check", "ps worker evaluator admin"},
      {"/grpc.health.v1.Health/Watch", "ps worker evaluator admin"},
      {"/ps.ParameterServer/NoSuchMethod", ""},
      {"/ps.ParameterServer/getjob", ""},
      {"/ps.ParameterServer/GetJob/", ""},
      {"/grpc.health.v1.Health/List", ""},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", ""},
      {"/grpc.channelz.v1.Channelz/GetServers", ""},
      {"/another.Service/GetJob", ""},
  };
  return *expected;
}

bool IsExpected(PeerRole role, const std::string& path) {
  const std::vector<std::string> roles = absl::StrSplit(ExpectedRoles().at(path), ' ');
  return std::find(roles.begin(), roles.end(), PeerRoleName(role)) != roles.end();
}

const ServiceDescriptor& ParameterServer() {
  return *ps::JobRequest::descriptor()->file()->FindServiceByName("ParameterServer");
}

TEST(AccessTableTest, EveryMethodHasExactlyOneRowAndEveryRowAMethod) {
  std::set<std::string> rows;
  for (const AccessRow& row : kAccessTable) {
    EXPECT_TRUE(rows.insert(row.path).second) << "has two rows: " << row.path;
    EXPECT_NE(row.roles, 0) << row.path;
  }
  for (int i = 0; i < ParameterServer().method_count(); ++i) {
    const std::string path = absl::StrCat(kService, ParameterServer().method(i)->name());
    EXPECT_EQ(rows.count(path), 1u) << "add a row for " << path << " to access_table.h";
    EXPECT_EQ(ExpectedRoles().count(path), 1u) << "add its roles to this test too";
  }
  for (const std::string& path : rows) {
    if (!absl::StartsWith(path, kService)) continue;
    EXPECT_NE(ParameterServer().FindMethodByName(path.substr(sizeof(kService) - 1)), nullptr)
        << "no such method: " << path;
  }
}

// One server with TLS, and one connection of each role to it.
class AccessOverTlsTest : public testing::Test {
 protected:
  void SetUp() override {
    handler_.weights = MakePayload(64, 1);
    TransportOptions options;
    options.credentials = CredentialsOf("ps-0");
    auto server = StartGrpcPsServer("127.0.0.1:0", &handler_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
    server_->SetServing(true);
    const char* const names[] = {"ps-0", "worker-0", "evaluator", "admin"};
    for (const PeerRole role : kPeerRoles) {
      const auto credentials = CredentialsOf(names[static_cast<int>(role)]);
      EXPECT_EQ(credentials->identity()->role, role);
      stubs_[role] = std::make_unique<grpc::GenericStub>(
          grpc::CreateChannel(server_->address(), credentials->ForChannel(server_->address())));
    }
  }

  std::shared_ptr<const TransportCredentials> CredentialsOf(const std::string& name) const {
    TransportSecurity security;
    security.tls = certificates_.Of(name);
    auto credentials = TransportCredentials::Create(security, {});
    CHECK(credentials.ok()) << credentials.status();
    return *credentials;
  }

  // Returns the status of a call with one message. Calls that the fake handler or a service keeps
  // waiting end with DEADLINE_EXCEEDED.
  grpc::Status Call(PeerRole role, const std::string& path, const std::string& message = "") {
    const bool waits = absl::EndsWith(path, "/Heartbeat") || absl::EndsWith(path, "/Watch");
    ByteStreamCall call(stubs_[role].get(), path,
                        waits ? absl::Milliseconds(200) : absl::Seconds(60));
    const grpc::Slice slice(message);
    call.Write(grpc::ByteBuffer(&slice, 1), /*last=*/true);
    grpc::ByteBuffer reply;
    do {
      call.StartRead(&reply);
    } while (call.WaitRead());
    return call.Finish();
  }

  FakePsHandler handler_;
  const TestCertificates certificates_;
  std::unique_ptr<GrpcPsServer> server_;
  std::map<PeerRole, std::unique_ptr<grpc::GenericStub>> stubs_;
};

TEST_F(AccessOverTlsTest, AllowsExactlyTheMethodsOfEachRole) {
  int refused = 0;
  int let_in = 0;
  for (const auto& [path, unused] : ExpectedRoles()) {
    for (const PeerRole role : kPeerRoles) {
      EXPECT_EQ(MayCall(role, path), IsExpected(role, path)) << PeerRoleName(role) << " " << path;
      const grpc::Status status = Call(role, path);
      const std::string what = absl::StrCat(PeerRoleName(role), " ", path, ": ",
                                            status.error_code(), " ", status.error_message());
      if (IsExpected(role, path)) {
        ++let_in;
        EXPECT_NE(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << what;
        EXPECT_NE(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << what;
        EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << what;
        continue;
      }
      ++refused;
      EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << what;
      EXPECT_THAT(status.error_message(),
                  testing::AllOf(testing::HasSubstr(path),
                                 testing::HasSubstr(
                                     absl::StrCat("spiffe://pushpull/test/", PeerRoleName(role)))));
    }
  }
  EXPECT_EQ(refused + let_in, static_cast<int>(ExpectedRoles().size() * kPeerRoles.size()));
  EXPECT_EQ(let_in, 4 * 4 + 7 + (1 + 2 + 1 + 1) + 3 + 5);
}

TEST_F(AccessOverTlsTest, ACallerThatIsRefusedAgainAndAgainDoesNotFillTheLog) {
  const WarningSink log;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Call(PeerRole::kWorker, "/ps.ParameterServer/Drain").error_code(),
              grpc::StatusCode::PERMISSION_DENIED);
  }
  // A burst of five, and one more for every ten seconds that a slow machine needs for the calls.
  const int logged = log.Count("refused a call: ");
  EXPECT_GE(logged, 5);
  EXPECT_LE(logged, 8);
}

// Sets the worker_id that a request claims, in whichever field holds it. Returns false if it has
// none.
bool ClaimWorkerId(Message* message, uint32_t worker_id) {
  const Descriptor& type = *message->GetDescriptor();
  if (const FieldDescriptor* field = type.FindFieldByName("worker_id")) {
    message->GetReflection()->SetUInt32(message, field, worker_id);
    return true;
  }
  const FieldDescriptor* key = type.FindFieldByName("key");
  return key != nullptr &&
         ClaimWorkerId(message->GetReflection()->MutableMessage(message, key), worker_id);
}

TEST_F(AccessOverTlsTest, RefusesMessagesForClonesOutsideTheCertificate) {
  int checked = 0;
  for (int i = 0; i < ParameterServer().method_count(); ++i) {
    const MethodDescriptor& method = *ParameterServer().method(i);
    const std::string path = absl::StrCat(kService, method.name());
    if (!MayCall(PeerRole::kWorker, path)) continue;
    const std::unique_ptr<Message> message(google::protobuf::MessageFactory::generated_factory()
                                               ->GetPrototype(method.input_type())
                                               ->New());
    if (!ClaimWorkerId(message.get(), 1)) continue;
    ++checked;
    const grpc::Status own = Call(PeerRole::kWorker, path, message->SerializeAsString());
    EXPECT_NE(own.error_code(), grpc::StatusCode::PERMISSION_DENIED) << own.error_message();
    const int chunks = handler_.chunk_calls();
    const int commits = handler_.commits();
    const int opened = handler_.opened();
    for (const uint32_t foreign : {2u, 4294967295u}) {
      ClaimWorkerId(message.get(), foreign);
      const grpc::Status status = Call(PeerRole::kWorker, path, message->SerializeAsString());
      EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED)
          << path << ": " << status.error_message();
      EXPECT_THAT(status.error_message(),
                  testing::AllOf(testing::HasSubstr(absl::StrCat("worker_id ", foreign)),
                                 testing::HasSubstr("spiffe://pushpull/test/worker/0-1")));
    }
    EXPECT_EQ(handler_.chunk_calls(), chunks);
    EXPECT_EQ(handler_.commits(), commits);
    EXPECT_EQ(handler_.opened(), opened);
  }
  EXPECT_EQ(checked, 7)
      << "DeclareVariables, Register, Heartbeat, Push, Commit, Pull, OpenSharedMemory";
}

// The push begins with the right worker_id, and a later chunk names another.
TEST_F(AccessOverTlsTest, RefusesAPushThatChangesItsWorker) {
  ByteStreamCall call(stubs_[PeerRole::kWorker].get(), "/ps.ParameterServer/Push",
                      absl::Seconds(60));
  ps::PushChunk chunk;
  chunk.mutable_key()->set_worker_id(0);
  const Payload payload = MakePayload(16, 3);
  chunk.set_crc32c(Crc32c(payload.data, payload.size_bytes));
  ASSERT_TRUE(call.Write(SerializeChunk(chunk, payload), /*last=*/false));
  handler_.AwaitChunks(1);
  chunk.set_chunk(1);
  chunk.mutable_key()->set_worker_id(2);
  call.Write(SerializeChunk(chunk, payload), /*last=*/true);
  grpc::ByteBuffer reply;
  call.StartRead(&reply);
  EXPECT_FALSE(call.WaitRead());
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(handler_.chunk_calls(), 1);
}

}  // namespace
}  // namespace pushpull
