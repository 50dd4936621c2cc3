// The table with real sockets of this process and a fake clock.
#include "ps_server/transport/connection_table.h"

#include <linux/socket.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/wire/grpc/channel_options.h"
#include "tests/testkit/fake_clock.h"

namespace pushpull {
namespace {

// A TCP connection over the loopback interface. Holds the server's end as gRPC would.
class Pair {
 public:
  Pair() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(name);
    EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&name), size), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    getsockname(listener, reinterpret_cast<sockaddr*>(&name), &size);
    client_ = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(client_, reinterpret_cast<sockaddr*>(&name), size), 0);
    sockaddr_storage peer{};
    size = sizeof(peer);
    server_ = accept(listener, reinterpret_cast<sockaddr*>(&peer), &size);
    EXPECT_GE(server_, 0);
    peer_ = PeerAddressOf(server_, peer);
    close(listener);
  }
  ~Pair() {
    close(client_);
    close(server_);
  }

  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // Sends bytes and reads them at the server's end, as gRPC reads incoming data.
  void Transfer(int64_t bytes) {
    const std::string block(1 << 16, 'x');
    std::string into(1 << 16, '\0');
    while (bytes > 0) {
      const auto part = std::min<int64_t>(bytes, static_cast<int64_t>(block.size()));
      ASSERT_EQ(send(client_, block.data(), part, 0), part);
      ASSERT_EQ(recv(server_, into.data(), part, MSG_WAITALL), part);
      bytes -= part;
    }
  }
  void SendOnly(int64_t bytes) {
    const std::string block(bytes, 'x');
    ASSERT_EQ(send(client_, block.data(), block.size(), 0), bytes);
  }
  bool IsCut() const {
    char byte;
    return recv(client_, &byte, 1, MSG_DONTWAIT) == 0;
  }
  // Whether the kernel may enlarge the receive buffer. No value if the kernel cannot be asked.
  std::optional<bool> BufferMayGrow() const {
    int locked = 0;
    socklen_t size = sizeof(locked);
    if (getsockopt(server_, SOL_SOCKET, SO_BUF_LOCK, &locked, &size) != 0) return std::nullopt;
    return (locked & SOCK_RCVBUF_LOCK) == 0;
  }
  int server_socket() const { return server_; }
  const PeerAddress& peer() const { return peer_; }
  std::string grpc_peer() const {
    return absl::StrCat("ipv4:127.0.0.1:", peer_.key.substr(peer_.key.find(' ') + 1));
  }

 private:
  int client_ = -1;
  int server_ = -1;
  PeerAddress peer_;
};

class ConnectionTableTest : public testing::Test {
 protected:
  void Make(ConnectionPreface preface = ConnectionPreface::kHttp2) {
    table_ = std::make_unique<ConnectionTable>(limits_, preface, &clock_);
  }
  // Returns -1 if the connection is refused.
  int Admit(const Pair& pair) { return Admit(pair, pair.peer()); }
  int Admit(const Pair& pair, const PeerAddress& peer) {
    const int fd = table_->Admit(pair.server_socket(), peer);
    if (fd >= 0) table_->NoteHandedOver(fd);
    return fd;
  }
  void Pass(absl::Duration duration) {
    clock_.Advance(duration);
    table_->Sweep();
  }
  // Sweeps twice: some rules only act on what two sweeps in a row have seen.
  void PassTwice() {
    Pass(absl::Milliseconds(20));
    Pass(absl::Milliseconds(20));
  }

  FakeClock clock_;
  ServerLimits limits_;
  std::unique_ptr<ConnectionTable> table_;
};

TEST_F(ConnectionTableTest, RefusesConnectionsBeyondTheLimitsUntilSomeEnd) {
  limits_.max_connections = 3;
  limits_.max_connections_per_peer = 2;
  Make();
  std::vector<Pair> pairs(5);
  const int first = Admit(pairs[0]);
  EXPECT_GE(first, 0);
  EXPECT_GE(Admit(pairs[1]), 0);
  EXPECT_EQ(Admit(pairs[2]), -1) << "a third connection from this host";
  EXPECT_GE(Admit(pairs[3], {"10.0.0.1", "10.0.0.1 1"}), 0);
  EXPECT_EQ(Admit(pairs[4], {"10.0.0.2", "10.0.0.2 1"}), -1) << "a fourth connection in all";
  EXPECT_EQ(table_->size(), 3);
  table_->Remove(first);
  EXPECT_EQ(table_->size(), 2);
  EXPECT_GE(Admit(pairs[4], {"10.0.0.2", "10.0.0.2 1"}), 0);
}

TEST_F(ConnectionTableTest, ANewConnectionReplacesASilentOne) {
  limits_.max_connections = 2;
  Make();
  std::vector<Pair> pairs(4);
  Admit(pairs[0]);
  clock_.Advance(absl::Milliseconds(1));
  Admit(pairs[1]);
  EXPECT_EQ(Admit(pairs[2]), -1) << "the connections are too young to count as silent";
  table_->Find(pairs[0].grpc_peer())->NoteReceived(10);
  clock_.Advance(absl::Seconds(2));
  EXPECT_GE(Admit(pairs[2]), 0);
  EXPECT_FALSE(pairs[0].IsCut());
  EXPECT_TRUE(pairs[1].IsCut());
  EXPECT_EQ(table_->size(), 2);
}

TEST_F(ConnectionTableTest, AHostAtItsLimitDoesNotReplaceSilentConnections) {
  limits_.max_connections = 3;
  limits_.max_connections_per_peer = 2;
  Make();
  std::vector<Pair> pairs(5);
  for (int i = 0; i < 2; ++i) {
    Admit(pairs[i]);
    table_->Find(pairs[i].grpc_peer())->NoteReceived(10);
  }
  Admit(pairs[2], {"10.0.0.1", "10.0.0.1 1"});
  clock_.Advance(absl::Seconds(2));
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(Admit(pairs[3]), -1);
  EXPECT_GE(Admit(pairs[4], {"10.0.0.2", "10.0.0.2 1"}), 0);
  EXPECT_TRUE(pairs[2].IsCut());
}

TEST_F(ConnectionTableTest, BytesWithoutMessagesEndTheConnection) {
  limits_.max_undelivered_bytes = 1 << 20;
  Make();
  Pair honest;
  Pair hostile;
  Admit(honest);
  const int cut = Admit(hostile);
  const auto account = table_->Find(honest.grpc_peer());
  for (int i = 0; i < 8; ++i) {
    honest.Transfer(500000);
    account->NoteReceived(499000);
    Pass(absl::Milliseconds(100));
    EXPECT_LT(table_->undelivered_bytes(), 1000);
  }
  table_->Find(hostile.grpc_peer())->NoteReceived(1);
  hostile.Transfer(1000000);
  Pass(absl::Milliseconds(20));
  EXPECT_FALSE(hostile.IsCut());
  EXPECT_NEAR(static_cast<double>(table_->undelivered_bytes()), 1000000, 1000);
  hostile.Transfer(100000);
  Pass(absl::Milliseconds(100));
  EXPECT_TRUE(hostile.IsCut());
  EXPECT_FALSE(honest.IsCut());
  EXPECT_EQ(table_->size(), 1);
  table_->Remove(cut);
  EXPECT_EQ(table_->size(), 1) << "a connection that was cut does not count any more";
}

// Many small messages must not let a client bring in large data that never forms a message.
TEST_F(ConnectionTableTest, ASmallMessageOnlyCoversItsOwnBytes) {
  limits_.max_undelivered_bytes = 1 << 20;
  Make();
  Pair pair;
  Admit(pair);
  const auto account = table_->Find(pair.grpc_peer());
  for (int i = 0; i < 200 && !pair.IsCut(); ++i) {
    pair.Transfer(20000);
    account->NoteReceived(100);
    Pass(absl::Milliseconds(100));
  }
  EXPECT_TRUE(pair.IsCut());
}

// Data that cannot belong to a push is cut far earlier, but not in the first sweep: the call that
// explains the data may be on its way.
TEST_F(ConnectionTableTest, ARunningPushMayFillItsWindow) {
  Make();
  Pair pushing;
  Pair other;
  Admit(pushing);
  Admit(other);
  for (const Pair* pair : {&pushing, &other}) table_->Find(pair->grpc_peer())->NoteReceived(1);
  table_->Find(pushing.grpc_peer())->NotePush(1);
  pushing.Transfer(5 << 20);
  other.Transfer(2 << 20);
  Pass(absl::Milliseconds(20));
  EXPECT_FALSE(other.IsCut());
  Pass(absl::Milliseconds(20));
  EXPECT_TRUE(other.IsCut());
  EXPECT_FALSE(pushing.IsCut());
  table_->Find(pushing.grpc_peer())->NotePush(-1);
  Pass(absl::Milliseconds(20));
  EXPECT_FALSE(pushing.IsCut());
  Pass(absl::Milliseconds(20));
  EXPECT_TRUE(pushing.IsCut());
}

// Covers thousands of calls and endless headers, for which gRPC works before they become messages.
TEST_F(ConnectionTableTest, APeerThatHasDeliveredMessagesGetsASecondSweep) {
  limits_.max_undelivered_without_push_bytes = 300000;
  Make();
  Pair fresh;
  Pair proven;
  Admit(fresh);
  Admit(proven);
  proven.Transfer(1000000);
  table_->Find(proven.grpc_peer())->NoteReceived(990000);
  Pass(absl::Milliseconds(20));
  fresh.Transfer(290000);
  proven.Transfer(290000);
  PassTwice();
  EXPECT_FALSE(fresh.IsCut());
  EXPECT_FALSE(proven.IsCut());
  fresh.Transfer(30000);
  proven.Transfer(30000);
  Pass(absl::Milliseconds(20));
  EXPECT_TRUE(fresh.IsCut());
  EXPECT_FALSE(proven.IsCut());
  Pass(absl::Milliseconds(20));
  EXPECT_TRUE(proven.IsCut());
}

// A registration with many variables may be the first message of a connection.
TEST_F(ConnectionTableTest, ASlowNetworkMayDeliverTheLongestMessageInManyPieces) {
  Make();
  Pair pair;
  Admit(pair);
  constexpr int64_t kPiece = 16384;
  for (int round = 0; round < 2; ++round) {
    int64_t sent = 0;
    while (sent < TransportOptions().max_message_bytes) {
      pair.Transfer(kPiece);
      sent += kPiece;
      Pass(absl::Milliseconds(100));
      ASSERT_FALSE(pair.IsCut()) << "after " << sent << " bytes of message " << round;
    }
    table_->Find(pair.grpc_peer())->NoteReceived(sent);
  }
}

TEST_F(ConnectionTableTest, SixtyFourBytesPerSecondAreNotCounted) {
  Make();
  Pair pair;
  Admit(pair);
  for (int second = 0; second < 100; ++second) {
    pair.Transfer(64);
    for (int sweep = 0; sweep < 50; ++sweep) Pass(absl::Milliseconds(20));
    ASSERT_LE(table_->undelivered_bytes(), 1) << "after " << second << " s";
  }
}

TEST_F(ConnectionTableTest, BarsTheHostOfACutConnectionForAMoment) {
  limits_.max_undelivered_bytes = 100000;
  Make();
  Pair there;
  Pair hostile;
  Pair next;
  Admit(there);
  Admit(hostile);
  hostile.Transfer(200000);
  Pass(absl::Milliseconds(100));
  EXPECT_TRUE(hostile.IsCut());
  EXPECT_FALSE(there.IsCut());
  EXPECT_TRUE(table_->IsBlocked("127.0.0.1"));
  EXPECT_FALSE(table_->IsBlocked("10.0.0.1")) << "another host is not blocked";
  EXPECT_GE(Admit(next), 0) << "the connection is admitted; it waits at the gate";
  Pass(limits_.block_time);
  EXPECT_FALSE(table_->IsBlocked("127.0.0.1"));
  next.Transfer(200000);
  Pass(absl::Milliseconds(100));
  EXPECT_TRUE(next.IsCut());
  Pass(limits_.block_time);
  EXPECT_TRUE(table_->IsBlocked("127.0.0.1")) << "the second block lasts longer";
  Pass(limits_.block_time);
  EXPECT_FALSE(table_->IsBlocked("127.0.0.1"));
}

TEST_F(ConnectionTableTest, ABlockDoublesUpToItsLimitAndIsForgivenInTime) {
  limits_.max_undelivered_bytes = 100000;
  Make();
  const auto offend = [this] {
    Pair hostile;
    const int fd = Admit(hostile);
    hostile.Transfer(200000);
    Pass(absl::Milliseconds(1));
    EXPECT_TRUE(hostile.IsCut());
    table_->Remove(fd);
  };
  const auto blocked_for = [this](absl::Duration length) {
    clock_.Advance(length - absl::Milliseconds(1));
    const bool still = table_->IsBlocked("127.0.0.1");
    Pass(absl::Milliseconds(1));
    return still && !table_->IsBlocked("127.0.0.1");
  };
  for (const int factor : {1, 2, 4, 4}) {
    offend();
    EXPECT_TRUE(blocked_for(factor * limits_.block_time)) << factor;
  }
  ASSERT_EQ(4 * limits_.block_time, limits_.max_block_time);
  Pass(absl::Seconds(29));
  offend();
  EXPECT_TRUE(blocked_for(limits_.max_block_time)) << "the host is not forgiven yet";
  Pass(absl::Seconds(30));
  offend();
  EXPECT_TRUE(blocked_for(limits_.block_time));
}

// gRPC may hold a closed connection for a moment, in which its peer connects from the same port.
TEST_F(ConnectionTableTest, AnOldConnectionTakesNothingFromANewOneOfTheSamePort) {
  Make();
  Pair old;
  Pair fresh;
  const int fd = Admit(old);
  const auto account = table_->Find(old.grpc_peer());
  Admit(fresh, old.peer());
  const auto fresh_account = table_->Find(old.grpc_peer());
  EXPECT_NE(fresh_account, account);
  table_->Remove(fd);
  EXPECT_EQ(table_->Find(old.grpc_peer()), fresh_account);
}

TEST_F(ConnectionTableTest, TheReceiveBufferStaysSmallBeforeTheFirstMessage) {
  Make();
  Pair pair;
  if (!pair.BufferMayGrow().has_value()) GTEST_SKIP() << "Linux before 5.14";
  EXPECT_EQ(pair.BufferMayGrow(), true);
  Admit(pair);
  Pass(absl::Milliseconds(20));
  EXPECT_EQ(pair.BufferMayGrow(), false);
  table_->Find(pair.grpc_peer())->NoteReceived(10);
  Pass(absl::Milliseconds(20));
  EXPECT_EQ(pair.BufferMayGrow(), true);
}

// Otherwise a client could close its connection in time and connect again at once.
TEST_F(ConnectionTableTest, BarsTheHostOfAConnectionThatClosedWithoutAMessage) {
  Make();
  std::vector<Pair> pairs(3);
  const int probe = Admit(pairs[0]);
  const int proven = Admit(pairs[1]);
  const int hostile = Admit(pairs[2]);
  pairs[0].Transfer(4000);
  pairs[1].Transfer(50000);
  table_->Find(pairs[1].grpc_peer())->NoteReceived(1000);
  pairs[2].Transfer(5000);
  table_->Remove(probe);
  table_->Remove(proven);
  EXPECT_FALSE(table_->IsBlocked("127.0.0.1"));
  table_->Remove(hostile);
  EXPECT_TRUE(table_->IsBlocked("127.0.0.1"));
  EXPECT_FALSE(table_->IsBlocked("10.0.0.1"));
  Pass(limits_.block_time);
  EXPECT_FALSE(table_->IsBlocked("127.0.0.1"));
}

TEST_F(ConnectionTableTest, DoesNotBarTlsHandshakesAndLongProbes) {
  Make(ConnectionPreface::kTls);
  std::vector<Pair> pairs(3);
  const int handshake = Admit(pairs[0]);
  pairs[0].Transfer(8000);
  table_->Remove(handshake);
  EXPECT_FALSE(table_->IsBlocked("127.0.0.1"));
  const int patient = Admit(pairs[1]);
  pairs[1].Transfer(20000);
  clock_.Advance(absl::Minutes(10));
  table_->Remove(patient);
  EXPECT_FALSE(table_->IsBlocked("127.0.0.1"));
  const int hostile = Admit(pairs[2]);
  pairs[2].Transfer(9000);
  table_->Remove(hostile);
  EXPECT_TRUE(table_->IsBlocked("127.0.0.1"));
}

TEST_F(ConnectionTableTest, DoesNotCountUnreadBytes) {
  limits_.max_undelivered_bytes = 100000;
  Make();
  Pair pair;
  Admit(pair);
  pair.SendOnly(200000);
  Pass(absl::Milliseconds(100));
  EXPECT_EQ(table_->undelivered_bytes(), 0);
  EXPECT_FALSE(pair.IsCut());
}

TEST_F(ConnectionTableTest, AStalledMessageEndsTheConnection) {
  limits_.stalled_message = absl::Seconds(10);
  Make();
  Pair stalled;
  Pair idle;
  Admit(stalled);
  Admit(idle);
  stalled.Transfer(70000);
  idle.Transfer(1000);
  for (int i = 0; i < 9; ++i) Pass(absl::Seconds(1));
  EXPECT_FALSE(stalled.IsCut());
  for (int i = 0; i < 3; ++i) Pass(absl::Seconds(1));
  EXPECT_TRUE(stalled.IsCut());
  for (int i = 0; i < 1000; ++i) Pass(absl::Seconds(1));
  EXPECT_FALSE(idle.IsCut());
}

TEST_F(ConnectionTableTest, TheTotalLimitCutsStalledConnectionsFirst) {
  limits_.max_undelivered_bytes = 1 << 20;
  limits_.max_total_undelivered_bytes = 2 << 20;
  Make();
  std::vector<Pair> pairs(4);
  for (const Pair& pair : pairs) Admit(pair);
  for (Pair& pair : pairs) pair.Transfer(600000);
  table_->Find(pairs[0].grpc_peer())->NoteReceived(1);
  Pass(absl::Milliseconds(1500));
  table_->Find(pairs[0].grpc_peer())->NoteReceived(1);
  Pass(absl::Milliseconds(100));
  int cut = 0;
  for (const Pair& pair : pairs) cut += pair.IsCut();
  EXPECT_EQ(cut, 1);
  EXPECT_FALSE(pairs[0].IsCut());
  EXPECT_LE(table_->undelivered_bytes(), limits_.max_total_undelivered_bytes);
}

TEST_F(ConnectionTableTest, ManyCancelledCallsEndTheConnection) {
  limits_.max_cancelled_calls = 100;
  limits_.max_cancelled_calls_per_second = 4.0;
  Make();
  Pair patient;
  Pair hasty;
  Admit(patient);
  Admit(hasty);
  for (int second = 0; second < 300; ++second) {
    for (int i = 0; i < 3; ++i) table_->Find(patient.grpc_peer())->NoteCancelled();
    Pass(absl::Seconds(1));
  }
  EXPECT_FALSE(patient.IsCut());
  for (int i = 0; i < 101; ++i) table_->Find(hasty.grpc_peer())->NoteCancelled();
  Pass(absl::Milliseconds(100));
  EXPECT_TRUE(hasty.IsCut());
}

TEST(PeerAddressTest, MatchesGrpcsNameOfTheConnection) {
  EXPECT_EQ(KeyOfGrpcPeer("ipv4:127.0.0.1:40123"), "127.0.0.1 40123");
  EXPECT_EQ(KeyOfGrpcPeer("ipv6:%5B::1%5D:40123"), "::1 40123");
  EXPECT_EQ(KeyOfGrpcPeer("ipv6:[fe80::1%252]:7"), "fe80::1 7");
  EXPECT_EQ(KeyOfGrpcPeer("unix:"), "");
  EXPECT_EQ(KeyOfGrpcPeer("unix:/tmp/x"), "");
  EXPECT_EQ(KeyOfGrpcPeer(""), "");
  EXPECT_EQ(KeyOfGrpcPeer("ipv4:"), "");
}

}  // namespace
}  // namespace pushpull
