// Listening addresses, the health service, and what else is offered.
#include "ps_server/transport/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/wire/grpc/grpc_ps_client.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "ps_server/transport/health_server.h"
#include "ps_server/transport/listening_sockets.h"
#include "tests/testkit/fake_ps_handler.h"
#include "tests/testkit/ordinary_user.h"
#include "tests/testkit/raw_call.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

sockaddr_un UnixName(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  return name;
}

TEST(ListenTest, HealthFollowsServing) {
  FakePsHandler handler;
  auto server = StartGrpcPsServer("127.0.0.1:0", &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  EXPECT_EQ(Health(address, ""), 1);
  EXPECT_EQ(Health(address, "ps.ParameterServer"), 2);
  EXPECT_EQ(Health(address, "other"), 0);
  (*server)->SetServing(true);
  EXPECT_EQ(Health(address, "ps.ParameterServer"), 1);
  (*server)->SetServing(false);
  EXPECT_EQ(Health(address, "ps.ParameterServer"), 2);
}

TEST(ListenTest, TheHealthServerServesNothingElse) {
  auto server = StartHealthServer("127.0.0.1:0");
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  EXPECT_EQ(Health(address, ""), 1);
  EXPECT_EQ(Health(address, "ps.ParameterServer"), 2);
  (*server)->SetServing(true);
  EXPECT_EQ(Health(address, "ps.ParameterServer"), 1);
  for (const char* method : {"/ps.ParameterServer/GetStatus",
                             "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    EXPECT_EQ(CallRaw(address, method, "").first.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
}

TEST(ListenTest, AllAddressesAreThoseOfBothFamilies) {
  auto server = StartHealthServer("0.0.0.0:0");  // as --health_port does
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string port = (*server)->address().substr(std::string("0.0.0.0:").size());
  EXPECT_EQ(Health("127.0.0.1:" + port, ""), 1);
  if (const auto ipv6 = ListeningSockets::Bind("[::1]:0"); !ipv6.ok()) {
    GTEST_SKIP() << "this machine has no IPv6: " << ipv6.status();
  }
  EXPECT_EQ(Health("[::1]:" + port, ""), 1);
}

TEST(ListenTest, OffersNoServicesOfGrpcBesideHealth) {
  FakePsHandler handler;
  auto server = StartGrpcPsServer("127.0.0.1:0", &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  EXPECT_EQ(Health(address, ""), 1);
  for (const auto& [method, request] : {
           // The bytes of ServerReflectionRequest{list_services = "*"}.
           std::pair("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "\x3a\x01*"),
           std::pair("/grpc.channelz.v1.Channelz/GetServers", ""),
       }) {
    EXPECT_EQ(CallRaw(address, method, request).first.error_code(), grpc::StatusCode::UNIMPLEMENTED)
        << method;
  }
}

TEST(ListenTest, NamesAPortInUse) {
  FakePsHandler handler;
  auto server = StartGrpcPsServer("127.0.0.1:0", &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  EXPECT_FALSE(absl::EndsWith(address, ":0"));
  for (const absl::Status& status :
       {StartGrpcPsServer(address, &handler).status(), StartHealthServer(address).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_TRUE(absl::StrContains(status.message(), address)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "in use")) << status;
  }
  EXPECT_TRUE(MakeGrpcPsClient(address)->GetStatus({}, absl::Seconds(60)).ok());
  server->reset();
  EXPECT_TRUE(StartGrpcPsServer(address, &handler).ok());
}

TEST(ListenTest, DoesNotTakeOverALiveUnixSocket) {
  FakePsHandler handler;
  const std::string address =
      absl::StrCat("unix:", testing::TempDir(), "/listen_test_", getpid(), ".sock");
  auto server = StartGrpcPsServer(address, &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->address(), address);
  EXPECT_EQ(StartGrpcPsServer(address, &handler).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(MakeGrpcPsClient(address)->GetStatus({}, absl::Seconds(60)).ok());
}

TEST(ListenTest, AServerThatEndsKeepsTheSocketOfItsSuccessor) {
  FakePsHandler handler;
  const std::string path = absl::StrCat(testing::TempDir(), "/successor_", getpid(), ".sock");
  auto first = StartGrpcPsServer("unix:" + path, &handler);
  ASSERT_TRUE(first.ok()) << first.status();
  // Simulates an administrator who makes room for a second server while the first one hangs.
  ASSERT_EQ(rename(path.c_str(), (path + ".old").c_str()), 0);
  auto second = StartGrpcPsServer("unix:" + path, &handler);
  ASSERT_TRUE(second.ok()) << second.status();
  first->reset();
  EXPECT_EQ(access(path.c_str(), F_OK), 0) << "the second server's socket must stay";
  second->reset();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  unlink((path + ".old").c_str());
}

TEST(ListenTest, AServerThatStartsWhileAnotherEndsKeepsItsSocket) {
  const std::string path = absl::StrCat(testing::TempDir(), "/ending_", getpid(), ".sock");
  for (int round = 0; round < 300; ++round) {
    auto ending = ListeningSockets::Bind("unix:" + path);
    ASSERT_TRUE(ending.ok()) << ending.status();
    absl::StatusOr<ListeningSockets> starting = absl::UnavailableError("not yet");
    std::thread starter([&] {
      while (!starting.ok()) starting = ListeningSockets::Bind("unix:" + path);
    });
    ending->Close();
    starter.join();
    ASSERT_EQ(access(path.c_str(), F_OK), 0) << "round " << round;
  }
}

// Leaves a socket file that nobody listens on, as a killed server does.
void LeaveStaleSocket(const std::string& path) {
  const sockaddr_un name = UnixName(path);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  close(fd);
}

TEST(ListenTest, OneOfTwoServersThatStartAtOnceReplacesAStaleUnixSocket) {
  const std::string path = absl::StrCat(testing::TempDir(), "/race_", getpid(), ".sock");
  for (int round = 0; round < 300; ++round) {
    LeaveStaleSocket(path);
    std::array<absl::StatusOr<ListeningSockets>, 2> servers;
    std::barrier start(2);
    const auto bind_one = [&](int i) {
      start.arrive_and_wait();
      servers[i] = ListeningSockets::Bind("unix:" + path);
    };
    std::thread other(bind_one, 1);
    bind_one(0);
    other.join();
    ASSERT_NE(servers[0].ok(), servers[1].ok()) << "round " << round;
    const absl::Status refused = servers[0].ok() ? servers[1].status() : servers[0].status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists) << refused;
    EXPECT_EQ(ListeningSockets::Bind("unix:" + path).status().code(),
              absl::StatusCode::kAlreadyExists)
        << "the winner must be reachable at the path";
  }
}

TEST(ListenTest, NamesTheFolderOfASocketThatAnotherProcessKeepsLocked) {
  const TestFolder folder;
  const int fd = open(folder.path().c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  const absl::Status refused = ListeningSockets::Bind("unix:" + folder.path() + "/s").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), folder.path() + " locked")) << refused;
  close(fd);
  EXPECT_TRUE(ListeningSockets::Bind("unix:" + folder.path() + "/s").ok());
}

// A server that was stopped accepts nothing, and clones that try again and again fill the queue of
// its socket.
TEST(ListenTest, DoesNotTakeOverTheUnixSocketOfABusyServer) {
  FakePsHandler handler;
  const std::string path = absl::StrCat(testing::TempDir(), "/listen_busy_", getpid());
  const sockaddr_un name = UnixName(path);
  const auto* const generic = reinterpret_cast<const sockaddr*>(&name);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(fd, generic, sizeof(name)), 0);
  ASSERT_EQ(listen(fd, 0), 0);
  std::vector<int> waiting;
  do {
    ASSERT_LT(waiting.size(), 1000u);
    waiting.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
  } while (connect(waiting.back(), generic, sizeof(name)) == 0);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(StartGrpcPsServer("unix:" + path, &handler).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  for (const int queued : waiting) close(queued);
  close(fd);
  unlink(path.c_str());
}

// In a folder that everybody may write, the socket of another user's server refuses the connection
// that tells whether it lives.
TEST(ListenTest, DoesNotReplaceTheUnixSocketOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only the superuser can make files of another user";
  const TestFolder folder;
  const std::string path = folder.path() + "/s";
  for (const bool is_alive : {true, false}) {
    absl::StatusOr<ListeningSockets> server;
    if (is_alive) {
      server = ListeningSockets::Bind("unix:" + path);
      ASSERT_TRUE(server.ok()) << server.status();
      ASSERT_EQ(chmod(path.c_str(), 0755), 0);
    } else {
      LeaveStaleSocket(path);
      ASSERT_EQ(chmod(path.c_str(), 0777), 0);
    }
    ASSERT_EQ(chmod(folder.path().c_str(), is_alive ? 0777 : 0755), 0);
    const OrdinaryUser user;
    const absl::Status refused = ListeningSockets::Bind("unix:" + path).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists) << refused;
    EXPECT_TRUE(absl::StrContains(refused.message(), "Permission denied")) << refused;
    EXPECT_EQ(access(path.c_str(), F_OK), 0);
  }
}

TEST(ListenTest, ReplacesAStaleUnixSocketButNoOtherFile) {
  FakePsHandler handler;
  const std::string path = absl::StrCat(testing::TempDir(), "/listen_stale_", getpid());
  LeaveStaleSocket(path);
  EXPECT_TRUE(StartGrpcPsServer("unix:" + path, &handler).ok());

  unlink(path.c_str());
  std::ofstream(path) << "precious";
  EXPECT_EQ(StartGrpcPsServer("unix:" + path, &handler).status().code(),
            absl::StatusCode::kAlreadyExists);
  struct stat info;
  EXPECT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 8);
  unlink(path.c_str());
}

TEST(ListenTest, NamesBadAddresses) {
  FakePsHandler handler;
  for (const std::string address :
       {"", "2222", "localhost", "localhost:", ":2222", "127.0.0.1:x", "127.0.0.1:65536",
        "127.0.0.1:-1", "no.such.host.invalid:2222", "unix:", "unix:/tmp/a#b", "unix:/tmp/50%"}) {
    const absl::Status status = StartGrpcPsServer(address, &handler).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), address)) << status;
  }
  EXPECT_EQ(StartGrpcPsServer("unix:/" + std::string(200, 'x'), &handler).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(StartGrpcPsServer("unix:/no/such/folder/s", &handler).status().code(),
            absl::StatusCode::kUnavailable);
  // An address that no interface of this machine has.
  EXPECT_EQ(StartGrpcPsServer("192.0.2.1:2222", &handler).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace pushpull
