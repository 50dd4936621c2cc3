// Which peers get a connection: bad certificates on either side, and certificate files that change.
#include <dlfcn.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <stdlib.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/wire/grpc/grpc_ps_client.h"
#include "common/wire/security/transport_credentials.h"
#include "protos/parameter_server.grpc.pb.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "tests/common/wire/security/test_certificates.h"
#include "tests/testkit/fake_ps_handler.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using Signer = CertificateSpec::Signer;

constexpr absl::Duration kCallTimeout = absl::Seconds(60);
constexpr char kWorker[] = "URI:spiffe://pushpull/test/worker/0-1";
constexpr char kPs[] = "URI:spiffe://pushpull/test/ps";

std::shared_ptr<const TransportCredentials> CredentialsOf(const TlsFiles& files) {
  TransportSecurity security;
  security.tls = files;
  auto credentials = TransportCredentials::Create(security, {});
  CHECK(credentials.ok()) << credentials.status();
  return *credentials;
}

// Credentials without our checks, for hostile peers.
std::shared_ptr<grpc::ChannelCredentials> RawClient(const TlsFiles& files) {
  return grpc::SslCredentials({TestCertificates::Read(files.ca), TestCertificates::Read(files.key),
                               TestCertificates::Read(files.cert)});
}

grpc::Status GetJob(const std::string& address,
                    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  // A separate pool, so that test cases do not share connections.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub =
      ps::ParameterServer::NewStub(grpc::CreateCustomChannel(address, credentials, arguments));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  ps::JobReply reply;
  return stub->GetJob(&context, ps::JobRequest(), &reply);
}

absl::Status GetJobAs(const std::string& address, const TlsFiles& files) {
  TransportOptions options;
  options.credentials = CredentialsOf(files);
  return MakeGrpcPsClient(address, options)->GetJob({}, kCallTimeout).status();
}

class TlsConnectionTest : public testing::Test {
 protected:
  std::unique_ptr<GrpcPsServer> Serve(const TlsFiles& files,
                                      absl::Duration age = absl::InfiniteDuration(),
                                      const std::string& address = "127.0.0.1:0") {
    TransportOptions options;
    options.credentials = CredentialsOf(files);
    options.max_connection_age = age;
    auto server = StartGrpcPsServer(address, &handler_, options);
    CHECK(server.ok()) << server.status();
    return std::move(*server);
  }

  const TestCertificates certificates_;
  FakePsHandler handler_;
};

// Returns how many of this process's threads wait for events of gRPC's callback API.
int CallbackThreads() {
  int code = 0;
  return std::stoi(OutputOf(
      absl::StrCat("cat /proc/", getpid(), "/task/*/comm | grep -c nexting_thread || true"),
      &code));
}

TEST_F(TlsConnectionTest, CredentialsOfAClientHaveNoThreadsForCalls) {
  const int before = CallbackThreads();
  const auto credentials = CredentialsOf(certificates_.Of("worker-0"));
  EXPECT_EQ(CallbackThreads(), before);
}

TEST_F(TlsConnectionTest, ValidCertificatesWorkOverTcpAndUnixSockets) {
  const std::string socket = absl::StrCat("unix:", certificates_.folder(), "/ps.sock");
  for (const std::string& address : {std::string("127.0.0.1:0"), socket}) {
    const auto server = Serve(certificates_.Of("ps-0"), absl::InfiniteDuration(), address);
    EXPECT_TRUE(GetJobAs(server->address(), certificates_.Of("worker-0")).ok());
    EXPECT_TRUE(GetJobAs(server->address(), certificates_.Of("ps-0")).ok());
  }
}

TEST_F(TlsConnectionTest, RefusesBadClientCertificates) {
  const auto server = Serve(certificates_.Of("ps-0"));
  const absl::Time now = absl::Now();
  const struct {
    const char* what;
    CertificateSpec spec;
  } cases[] = {
      {"expired", {.not_before = now - absl::Hours(2), .not_after = now - absl::Hours(1)}},
      {"not yet valid", {.not_before = now + absl::Hours(1), .not_after = now + absl::Hours(2)}},
      {"self-signed", {.signer = Signer::kSelf}},
      {"of another authority with the same name", {.signer = Signer::kOther}},
      {"of another job", {.names = "URI:spiffe://pushpull/other/worker/0-1"}},
      {"of another trust domain", {.names = "URI:spiffe://example/test/worker/0-1"}},
      {"without any name", {.names = ""}},
      {"with a host name only", {.names = "DNS:localhost"}},
      {"with two identities", {.names = absl::StrCat(kWorker, ",", kPs)}},
      {"of an unknown role", {.names = "URI:spiffe://pushpull/test/root"}},
      {"for servers only", {.usage = "serverAuth"}},
      {"for no stated use", {.usage = ""}},
  };
  for (const auto& c : cases) {
    const TlsFiles files = certificates_.Issue("bad", c.spec);
    const grpc::Status status = GetJob(server->address(), RawClient(files));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE)
        << c.what << ": " << status.error_message();
  }
  // The same request succeeds with a valid certificate.
  const grpc::Status good =
      GetJob(server->address(), RawClient(certificates_.Issue("good", CertificateSpec())));
  EXPECT_TRUE(good.ok()) << good.error_message();
}

TEST_F(TlsConnectionTest, RefusesBadServerCertificates) {
  const absl::Time now = absl::Now();
  const CertificateSpec good = {.names = absl::StrCat(kPs, kLocalNames),
                                .usage = "serverAuth,clientAuth"};
  const auto changed = [&](void (*change)(CertificateSpec*)) {
    CertificateSpec spec = good;
    change(&spec);
    return spec;
  };
  CertificateSpec expired = good;
  expired.not_before = now - absl::Hours(2);
  expired.not_after = now - absl::Hours(1);
  CertificateSpec early = good;
  early.not_before = now + absl::Hours(1);
  early.not_after = now + absl::Hours(2);
  const struct {
    const char* what;
    CertificateSpec spec;
    const char* words;  // in the client's error
  } cases[] = {
      {"expired", expired, ""},
      {"not yet valid", early, ""},
      {"self-signed", changed([](auto* spec) { spec->signer = Signer::kSelf; }), ""},
      {"of another authority", changed([](auto* spec) { spec->signer = Signer::kOther; }), ""},
      {"of a worker", changed([](auto* spec) { spec->names = absl::StrCat(kWorker, kLocalNames); }),
       "expected a ps task"},
      {"of another job", changed([](auto* spec) {
         spec->names = absl::StrCat("URI:spiffe://pushpull/other/ps", kLocalNames);
       }),
       "expected job test"},
      {"without identity", changed([](auto* spec) { spec->names = "DNS:localhost,IP:127.0.0.1"; }),
       "has 0 URIs"},
      {"for another host", changed([](auto* spec) {
         spec->names = absl::StrCat(kPs, ",DNS:ps7.example,IP:192.0.2.7");
       }),
       "not for the host \"127.0.0.1\""},
      {"for no host", changed([](auto* spec) { spec->names = kPs; }),
       "not for the host \"127.0.0.1\""},
      {"for clients only", changed([](auto* spec) { spec->usage = "clientAuth"; }), ""},
      {"for no stated use", changed([](auto* spec) { spec->usage = ""; }), "lacks serverAuth"},
  };
  const auto try_one = [&](const CertificateSpec& spec) {
    const TlsFiles files = certificates_.Issue("bad", spec);
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = TestCertificates::Read(files.ca);
    options.pem_key_cert_pairs.push_back(
        {TestCertificates::Read(files.key), TestCertificates::Read(files.cert)});
    ps::ParameterServer::Service service;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
    builder.RegisterService(&service);
    const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    CHECK(server != nullptr);
    const std::string address = absl::StrCat("127.0.0.1:", port);
    return GetJob(address, CredentialsOf(certificates_.Of("worker-0"))->ForChannel(address));
  };
  for (const auto& c : cases) {
    const grpc::Status status = try_one(c.spec);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE)
        << c.what << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(c.words)) << c.what;
  }
  // The server is reached: it answers, although it has no such service.
  EXPECT_EQ(try_one(good).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(TlsConnectionTest, RefusesPlaintextNoCertificateAndOldProtocols) {
  const auto server = Serve(certificates_.Of("ps-0"));
  const TlsFiles worker = certificates_.Of("worker-0");
  EXPECT_EQ(GetJob(server->address(), grpc::InsecureChannelCredentials()).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(
      GetJob(server->address(), grpc::SslCredentials({TestCertificates::Read(worker.ca), "", ""}))
          .error_code(),
      grpc::StatusCode::UNAVAILABLE);
  auto plain = StartGrpcPsServer("127.0.0.1:0", &handler_);
  ASSERT_TRUE(plain.ok());
  for (const absl::Status& refused :
       {GetJobAs((*plain)->address(), worker),
        MakeGrpcPsClient(server->address(), {})->GetJob({}, kCallTimeout).status()}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("perhaps one side uses TLS"));
  }

  const auto handshake = [&](const std::string& protocol) {
    int code = 0;
    const std::string output =
        OutputOf(absl::StrCat("timeout 60 openssl s_client -connect ", server->address(),
                              " -CAfile ", worker.ca, " -cert ", worker.cert, " -key ", worker.key,
                              " -alpn h2 ", "-cipher DEFAULT@SECLEVEL=0 ", protocol),
                 &code);
    return std::make_pair(code, output);
  };
  for (const char* old : {"-tls1", "-tls1_1"}) {
    const auto [code, output] = handshake(old);
    EXPECT_NE(code, 0) << old;
    // gRPC closes the connection after the hello, without an alert.
    EXPECT_THAT(output, HasSubstr("no peer certificate available")) << old;
  }
  for (const char* modern : {"-tls1_2", "-tls1_3"}) {
    const auto [code, output] = handshake(modern);
    EXPECT_EQ(code, 0) << modern << output;
    EXPECT_THAT(output, HasSubstr("Verify return code: 0 (ok)")) << modern;
  }
}

// Asks until the condition holds: gRPC reads the files once a second.
bool Becomes(const std::function<bool()>& wanted) {
  const absl::Time give_up = absl::Now() + kCallTimeout;
  while (!wanted()) {
    if (absl::Now() > give_up) return false;
    absl::SleepFor(absl::Milliseconds(100));
  }
  return true;
}

TEST_F(TlsConnectionTest, NewConnectionsUseReplacedFiles) {
  const auto server = Serve(certificates_.Of("ps-0"));
  TransportOptions options;
  options.credentials = CredentialsOf(certificates_.Of("worker-0"));
  const auto client = MakeGrpcPsClient(server->address(), options);
  ASSERT_TRUE(client->GetJob({}, kCallTimeout).ok());

  // The certificate of an old worker that has not been replaced.
  const auto former = RawClient(certificates_.Of("worker-0"));
  certificates_.MakeCerts("--new_authority --ps=127.0.0.1 --workers=1 --clones=2");
  // While both authorities are valid, the old connection and new ones accept old and new
  // certificates.
  EXPECT_TRUE(Becomes(
      [&] { return GetJob(server->address(), RawClient(certificates_.Of("worker-0"))).ok(); }));
  EXPECT_TRUE(client->GetJob({}, kCallTimeout).ok());
  certificates_.MakeCerts("--forget_old_authority");
  EXPECT_TRUE(Becomes([&] { return !GetJob(server->address(), former).ok(); }));
  EXPECT_TRUE(GetJobAs(server->address(), certificates_.Of("worker-0")).ok());
  EXPECT_TRUE(client->GetJob({}, kCallTimeout).ok()) << "the open connection is kept";
  // The client's existing channel also uses its new files once it has to reconnect.
  const std::string address = server->address();
  server->Stop(absl::ZeroDuration());
  const auto again = Serve(certificates_.Of("ps-0"), absl::InfiniteDuration(), address);
  EXPECT_TRUE(Becomes([&] { return client->GetJob({}, kCallTimeout).ok(); }));
}

// Workers retry in this way: with pauses in which no call waits inside gRPC.
TEST_F(TlsConnectionTest, FindsAServerThatStartsLater) {
  auto first = Serve(certificates_.Of("ps-0"));
  const std::string address = first->address();
  first.reset();
  TransportOptions options;
  options.credentials = CredentialsOf(certificates_.Of("worker-0"));
  const auto client = MakeGrpcPsClient(address, options);
  EXPECT_EQ(client->GetJob({}, kCallTimeout).status().code(), absl::StatusCode::kUnavailable);
  const auto server = Serve(certificates_.Of("ps-0"), absl::InfiniteDuration(), address);
  absl::Status status;
  for (int attempt = 0; attempt < 5; ++attempt) {
    status = client->GetJob({}, kCallTimeout).status();
    if (status.ok()) break;
    absl::SleepFor(absl::Seconds(2));
  }
  EXPECT_TRUE(status.ok()) << status;
}

// A call that begins in the moment in which the server gives up the connection may be refused
// before the server has seen it, because gRPC's own retries are off. It succeeds when it is
// repeated at once, as callers do. Calls that are under way go on.
TEST_F(TlsConnectionTest, ReplacesAgedConnectionsWithoutALostCall) {
  const auto server = Serve(certificates_.Of("ps-0"), absl::Milliseconds(300));
  TransportOptions options;
  options.credentials = CredentialsOf(certificates_.Of("worker-0"));
  const auto client = MakeGrpcPsClient(server->address(), options);
  // This push takes longer than the maximum age of a connection.
  const auto push = client->StartPush(kCallTimeout);
  const Payload payload = MakePayload(1 << 20, 1);
  ps::PushChunk chunk;
  ASSERT_TRUE(push->Send(chunk, payload).ok());
  for (int call = 0; call < 60; ++call) {
    absl::Status status = client->GetJob({}, kCallTimeout).status();
    if (absl::IsUnavailable(status)) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("GOAWAY received"));
      status = client->GetJob({}, kCallTimeout).status();
    }
    EXPECT_TRUE(status.ok()) << call << ": " << status;
    absl::SleepFor(absl::Milliseconds(20));
  }
  chunk.set_chunk(1);
  EXPECT_TRUE(push->Send(chunk, payload).ok());
  const auto reply = push->Finish();
  EXPECT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(handler_.chunk_calls(), 2);
}

TEST_F(TlsConnectionTest, AnExpiredCertificateIsRefusedAtTheNextConnection) {
  const auto server = Serve(certificates_.Of("ps-0"), absl::Seconds(1));
  // Long enough for the first connection on a slow machine.
  const absl::Time end = absl::Now() + absl::Seconds(10);
  const TlsFiles brief = certificates_.Issue("brief", {.not_after = end});
  TransportOptions options;
  options.credentials = CredentialsOf(brief);
  const auto client = MakeGrpcPsClient(server->address(), options);
  absl::Status status;
  const auto succeeds = [&] {
    status = client->GetJob({}, kCallTimeout).status();
    return status.ok();
  };
  EXPECT_TRUE(succeeds()) << status;
  // A call that the server refuses because the connection is too old succeeds when it is repeated.
  EXPECT_TRUE(Becomes([&] { return absl::Now() > end && !succeeds() && !succeeds(); }));
  // After the file has been renewed, the same client connects again.
  certificates_.Issue("brief", CertificateSpec());
  EXPECT_TRUE(Becomes(succeeds)) << status;
}

// A second entry of ctest runs this test with the library testkit/slow_unwatch, in which a
// connection that ends is slow to say that it no longer watches the certificates. New connections
// begin in between.
TEST_F(TlsConnectionTest, NewConnectionsGetCertificatesWhileOldOnesEnd) {
  const auto server = Serve(certificates_.Of("ps-0"), absl::Milliseconds(200));
  TransportOptions options;
  options.credentials = CredentialsOf(certificates_.Of("worker-0"));
  const auto client = MakeGrpcPsClient(server->address(), options);
  auto* const slowed = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "SlowedUnwatches"));
  ASSERT_EQ(slowed != nullptr, getenv("PUSHPULL_SLOW_UNWATCHES") != nullptr);
  const absl::Time start = absl::Now();
  while (absl::Now() - start < absl::Seconds(2) || (slowed != nullptr && slowed() < 5)) {
    ASSERT_LT(absl::Now() - start, kCallTimeout) << "the library has not waited";
    absl::Status status = client->GetJob({}, kCallTimeout).status();
    if (!status.ok()) status = client->GetJob({}, kCallTimeout).status();
    ASSERT_TRUE(status.ok()) << status;
    absl::SleepFor(absl::Milliseconds(5));
  }
}

}  // namespace
}  // namespace pushpull
