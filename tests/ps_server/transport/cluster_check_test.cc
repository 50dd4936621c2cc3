// What an administrator is told over real sockets if a peer is dead, silent, foreign or misplaced.
#include "common/cluster/cluster_check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/cluster/address_probe.h"
#include "common/wire/error_detail.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "common/wire/protocol_version.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "ps_server/transport/health_server.h"
#include "tests/testkit/fake_ps_handler.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kRun[] = "0123456789abcdef";

class Task : public FakePsHandler {
 public:
  explicit Task(int shard) {
    state.set_shard(shard);
    state.set_job_run_id(kRun);
    state.set_epoch(1);
    state.set_protocol_version(kProtocolVersion);
    job.set_run_id(kRun);
    job.set_tasks(2);
    job.set_layout_signature("mobilenet");
    server = StartGrpcPsServer("127.0.0.1:0", this).value();
  }
  void GetShardState(const ps::ShardStateRequest&, Done<ps::ShardStateReply> done) override {
    done(waits.ok() ? absl::StatusOr<ps::ShardStateReply>(state) : waits);
  }
  void GetJob(const ps::JobRequest&, Done<ps::JobReply> done) override { done(job); }
  const std::string& address() const { return server->address(); }

  ps::ShardStateReply state;
  absl::Status waits = absl::OkStatus();  // an error that GetShardState returns
  ps::JobReply job;
  std::unique_ptr<GrpcPsServer> server;
};

// Accepts connections but never sends anything.
class SilentListener {
 public:
  SilentListener() {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  void Listen() { EXPECT_EQ(listen(fd_, 8), 0); }
  ~SilentListener() { close(fd_); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  int fd_;
  int port_;
};

class ClusterCheckTest : public ::testing::Test {
 protected:
  ClusterCheckTest() { options_.security.insecure = true; }
  ClusterReport Check(std::vector<std::string> ps) {
    options_.ps = std::move(ps);
    return CheckCluster(options_,
                        [](const std::string& address) { return MakeGrpcPsClient(address); });
  }
  // Expects task 1 in this state for this reason, and task 0 ready.
  void ExpectTask1(const std::string& address, PeerState state, const std::string& reason) {
    const ClusterReport report = Check({zero_.address(), address});
    ASSERT_EQ(report.peers.size(), 2);
    EXPECT_EQ(report.peers[0].state, PeerState::kReady) << report.peers[0].reason;
    EXPECT_EQ(report.peers[1].state, state) << report.peers[1].reason;
    EXPECT_THAT(report.peers[1].reason, HasSubstr(reason));
    EXPECT_EQ(report.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(report.status().message()),
                AllOf(HasSubstr("1 of 2 ps tasks are not ready"),
                      HasSubstr(absl::StrCat("ps task 1 at ", address)), HasSubstr(reason)));
  }

  ClusterCheckOptions options_;
  Task zero_{0};
  Task one_{1};
};

TEST_F(ClusterCheckTest, AllTasksAreReady) {
  const ClusterReport report = Check({zero_.address(), one_.address()});
  EXPECT_TRUE(report.status().ok()) << report.status();
  EXPECT_GT(report.peers[1].round_trip, absl::ZeroDuration());
  EXPECT_THAT(report.Table(), AllOf(HasSubstr("task  address"), HasSubstr(one_.address()),
                                    HasSubstr("ready"), HasSubstr("30313233"), HasSubstr(" ms")));
}

// Task 0 answers like this until a clone has declared the variables of an external model.
TEST_F(ClusterCheckTest, TaskZeroMayNotBeReadyEither) {
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::NOT_READY);
  zero_.waits = MakeError(detail, "it waits for variables");
  const ClusterReport report = Check({zero_.address()});
  ASSERT_EQ(report.peers.size(), 1);
  EXPECT_EQ(report.peers[0].state, PeerState::kStarting);
  EXPECT_THAT(report.peers[0].reason, HasSubstr("it waits for variables"));
}

TEST_F(ClusterCheckTest, TaskZeroGivesTheOtherAddresses) {
  zero_.job.add_addresses("as it calls itself");
  zero_.job.add_addresses(one_.address());
  const ClusterReport report = Check({zero_.address()});
  ASSERT_EQ(report.peers.size(), 2);
  EXPECT_EQ(report.peers[1].address, one_.address());
  EXPECT_TRUE(report.status().ok()) << report.status();
}

TEST_F(ClusterCheckTest, AWildcardStandsForTheHostOfTaskZero) {
  zero_.job.add_addresses("0.0.0.0:1");
  const std::string port = one_.address().substr(one_.address().rfind(':'));
  zero_.job.add_addresses(absl::StrCat("0.0.0.0", port));
  const ClusterReport report = Check({zero_.address()});
  ASSERT_EQ(report.peers.size(), 2);
  EXPECT_EQ(report.peers[1].address, one_.address());
  EXPECT_TRUE(report.status().ok()) << report.status();
}

TEST_F(ClusterCheckTest, AsksNoOtherMachineInPlaintext) {
  zero_.job.add_addresses(zero_.address());
  zero_.job.add_addresses("192.0.2.1:2222");
  options_.security.insecure = false;
  const ClusterReport report = Check({zero_.address()});
  ASSERT_EQ(report.peers.size(), 2);
  EXPECT_EQ(report.peers[0].state, PeerState::kReady);
  EXPECT_EQ(report.peers[1].state, PeerState::kRefused);
  EXPECT_THAT(report.peers[1].reason, AllOf(HasSubstr("192.0.2.1:2222"), HasSubstr("--insecure")));
}

TEST_F(ClusterCheckTest, DoesNotAskItsOwnTask) {
  options_.own_task = 1;
  const ClusterReport report = Check({zero_.address(), "nowhere.invalid:1"});
  EXPECT_EQ(report.peers[1].state, PeerState::kOwn);
  EXPECT_TRUE(report.status().ok()) << report.status();
}

TEST_F(ClusterCheckTest, ReportsARefusedConnection) {
  const SilentListener bound;  // keeps the port from being taken
  ExpectTask1(bound.address(), PeerState::kUnreachable, "connection refused by 127.0.0.1 port");
}

TEST_F(ClusterCheckTest, ReportsANameThatDoesNotResolve) {
  ExpectTask1("ps-1.invalid:2222", PeerState::kUnreachable, "the name \"ps-1.invalid\"");
}

TEST_F(ClusterCheckTest, ReportsAMissingSocket) {
  ExpectTask1("unix:/nonexistent/socket", PeerState::kUnreachable,
              "there is no socket /nonexistent/socket");
}

TEST_F(ClusterCheckTest, StopsWaitingForASilentPeer) {
  SilentListener silent;
  silent.Listen();
  options_.patience = absl::Milliseconds(400);
  ExpectTask1(silent.address(), PeerState::kUnreachable, "gives no answer in 400ms");
}

TEST_F(ClusterCheckTest, ReportsAnotherGrpcService) {
  const auto health = StartHealthServer("127.0.0.1:0").value();
  ExpectTask1(health->address(), PeerState::kRefused, "is no ps_server");
}

TEST_F(ClusterCheckTest, ReportsAnotherJob) {
  one_.state.set_job_run_id("another run's id");
  ExpectTask1(one_.address(), PeerState::kOtherJob,
              "belongs to run 616e6f74, task 0 to run 30313233");
}

TEST_F(ClusterCheckTest, ReportsAddressesInAnotherOrder) {
  const ClusterReport report = Check({one_.address(), zero_.address()});
  EXPECT_EQ(report.peers[0].state, PeerState::kWrongTask);
  EXPECT_EQ(report.peers[1].state, PeerState::kWrongTask);
  EXPECT_THAT(report.peers[0].reason, HasSubstr("is task 1 of the job, not task 0"));
}

TEST_F(ClusterCheckTest, ReportsAnotherVersion) {
  one_.state.set_protocol_version(kProtocolVersion + 1);
  ExpectTask1(one_.address(), PeerState::kOtherVersion,
              "upgrade this program to the release of it");
}

TEST_F(ClusterCheckTest, ReportsMissingVariables) {
  one_.state.set_epoch(0);
  ExpectTask1(one_.address(), PeerState::kStarting, "does not have its variables yet");
}

TEST_F(ClusterCheckTest, ReportsAnotherNumberOfTasksOrModel) {
  options_.job_difference = [](const ps::JobReply& told) {
    return absl::StrCat("trains another model: ", told.layout_signature());
  };
  ClusterReport report = Check({zero_.address(), one_.address()});
  EXPECT_EQ(report.peers[0].state, PeerState::kOtherJob);
  EXPECT_THAT(report.peers[0].reason, HasSubstr("trains another model: mobilenet"));
  zero_.job.set_tasks(3);
  report = Check({zero_.address(), one_.address()});
  EXPECT_THAT(report.peers[0].reason, HasSubstr("3 ps tasks, this process knows 2"));
}

TEST(AddressProbeTest, ReportsAMalformedAddress) {
  EXPECT_EQ(ProbeAddress("2222", absl::Seconds(1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ProbeAddress("unix:", absl::Seconds(1)).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pushpull
