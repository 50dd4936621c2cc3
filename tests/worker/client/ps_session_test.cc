// How a session handles answers that do not fit the job.
#include "worker/client/ps_session.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/clock.h"
#include "common/model/sharding.h"
#include "common/wire/error_detail.h"
#include "common/wire/gradient_codec.h"
#include "common/wire/transport_security.h"
#include "tests/testkit/fake_clock.h"
#include "tests/testkit/fake_ps_handler.h"
#include "tests/testkit/in_process_ps_client.h"
#include "tests/testkit/job/toy_gradient_source.h"
#include "tests/testkit/refusing_ps_client.h"
#include "tests/testkit/warning_sink.h"

namespace pushpull {
namespace {

constexpr int64_t kSessionElements = Sharding::kFirstChunkElements + 10;  // two chunks

ps::JobReply JobOf(const ps::JobRequest& request, int tasks) {
  ps::JobReply reply;
  reply.set_protocol_version(request.protocol_version());
  reply.set_tasks(tasks);
  for (int task = 0; task < tasks; ++task) reply.add_addresses(absl::StrCat("task ", task));
  return reply;
}

class OneTaskHandler : public FakePsHandler {
 public:
  void GetJob(const ps::JobRequest& request, Done<ps::JobReply> done) override {
    done(JobOf(request, 1));
  }
};

class PsSessionPullTest : public ::testing::Test {
 protected:
  PsSessionPullTest()
      : session_(
            {},
            [this](const std::string& address) {
              return MakeInProcessPsClient(&handler_, address, nullptr);
            },
            &clock_, nullptr) {
    EXPECT_TRUE(session_.Connect({"task 0"}).ok());
  }

  absl::Status Pull(int64_t sent_elements) {
    handler_.weights = MakePayload(sent_elements * sizeof(float), 1);
    told_.clear();
    return session_
        .Pull(0, /*exact=*/false, absl::Seconds(1), absl::MakeSpan(weights_),
              [this](int64_t first, int64_t end) {
                told_.emplace_back(first, end);
                const size_t bytes = (end - first) * sizeof(float);
                EXPECT_EQ(
                    std::string(reinterpret_cast<const char*>(weights_.data() + first), bytes),
                    ToString(handler_.weights).substr(first * sizeof(float), bytes));
              })
        .status();
  }

  OneTaskHandler handler_;
  SteadyClock clock_;
  PsSession session_;
  std::vector<float> weights_ = std::vector<float>(kSessionElements);
  std::vector<std::pair<int64_t, int64_t>> told_;  // element ranges that the last pull announced
};

TEST_F(PsSessionPullTest, PullsTheWeights) {
  const absl::Status status = Pull(kSessionElements);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(
      std::string(reinterpret_cast<const char*>(weights_.data()), kSessionElements * sizeof(float)),
      ToString(handler_.weights));
  using Range = std::pair<int64_t, int64_t>;
  const int64_t chunk = Sharding::kFirstChunkElements;
  EXPECT_EQ(told_, (std::vector<Range>{{0, 0}, {0, chunk}, {chunk, kSessionElements}}));
}

TEST_F(PsSessionPullTest, RefusesChunksThatDoNotFitTheModel) {
  for (const int64_t elements : {int64_t{10}, kSessionElements - 1, kSessionElements + 1}) {
    const absl::Status status = Pull(elements);
    EXPECT_TRUE(absl::IsDataLoss(status)) << elements << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "ps task 0 at task 0 sent chunk")) << status;
  }
  // Missing chunks may still come, but chunks past the last have no place.
  EXPECT_TRUE(absl::IsUnavailable(Pull(Sharding::kFirstChunkElements)));
  weights_.resize(Sharding::kFirstChunkElements);
  const absl::Status status = Pull(kSessionElements);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "more chunks of shard 0 than the 1 it has"))
      << status;
}

TEST_F(PsSessionPullTest, DecodesWeightsThatItAsksForAsBfloat16) {
  auto sent = std::make_shared<std::vector<float>>(kSessionElements);
  for (int64_t i = 0; i < kSessionElements; ++i) (*sent)[i] = 1.0f / static_cast<float>(i + 3);
  handler_.weights = {sent, reinterpret_cast<const char*>(sent->data()), 4 * sent->size()};
  PsSession::Options options;
  options.weight_codec = &Bfloat16Codec();
  PsSession session(
      options,
      [this](const std::string& address) {
        return MakeInProcessPsClient(&handler_, address, nullptr);
      },
      &clock_, nullptr);
  ASSERT_TRUE(session.Connect({"task 0"}).ok());
  std::string encoded(2 * kSessionElements, '\0');
  Bfloat16Codec().Encode(*sent, encoded.data());
  std::vector<float> expected(kSessionElements);
  Bfloat16Codec().Decode(encoded.data(), kSessionElements, 0, kSessionElements, expected.data());
  // A chunk is decoded when it is announced.
  const auto announced = [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) ASSERT_EQ(weights_[i], expected[i]) << i;
  };
  for (const bool announces : {true, false}) {
    std::fill(weights_.begin(), weights_.end(), 0.0f);
    const auto pulled = session.Pull(0, /*exact=*/false, absl::Seconds(1), absl::MakeSpan(weights_),
                                     announces ? PsSession::ElementsReady(announced) : nullptr);
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(weights_, expected);
  }
}

// The client of one of two tasks. It answers a pull with chunks of the given versions.
class VersionedClient : public RefusingPsClient {
 public:
  VersionedClient(int shard, std::vector<uint64_t> versions,
                  ps::GradientEncoding encoding = ps::FLOAT32)
      : shard_(shard), versions_(std::move(versions)), encoding_(encoding) {}

  absl::StatusOr<ps::JobReply> GetJob(const ps::JobRequest& request, absl::Duration) override {
    return JobOf(request, 2);
  }
  absl::Status Pull(const ps::PullRequest&, absl::Duration, PullSink sink) override {
    const Sharding sharding(kShardedElements, 2);
    for (int chunk = 0; chunk < sharding.num_chunks(shard_); ++chunk) {
      const int64_t elements = sharding.chunk(shard_, chunk).size();
      ps::PullChunk header;
      header.set_shard(shard_);
      header.set_chunk(chunk);
      header.set_encoding(encoding_);
      header.set_version(versions_[std::min<size_t>(chunk, versions_.size() - 1)]);
      const absl::StatusOr<char*> to = sink(header, elements * sizeof(float));
      if (!to.ok()) return to.status();
      std::fill_n(reinterpret_cast<float*>(*to), elements, static_cast<float>(header.version()));
    }
    return absl::OkStatus();
  }

  // Both shards have two chunks.
  static constexpr int64_t kShardedElements = 4 * Sharding::kFirstChunkElements;

 private:
  const int shard_;
  const std::vector<uint64_t> versions_;
  const ps::GradientEncoding encoding_;
};

// Pulls from two shards that answer with these versions of their chunks.
absl::StatusOr<uint64_t> PullVersions(const std::vector<uint64_t>& shard_0,
                                      const std::vector<uint64_t>& shard_1, uint64_t wanted,
                                      bool exact) {
  SteadyClock clock;
  PsSession session(
      {},
      [&](const std::string& address) -> std::unique_ptr<PsClient> {
        if (address == "task 0") return std::make_unique<VersionedClient>(0, shard_0);
        return std::make_unique<VersionedClient>(1, shard_1);
      },
      &clock, nullptr);
  EXPECT_TRUE(session.Connect({"task 0"}).ok());
  std::vector<float> weights(VersionedClient::kShardedElements);
  const absl::StatusOr<uint64_t> pulled =
      session.Pull(wanted, exact, absl::Seconds(1), absl::MakeSpan(weights));
  if (pulled.ok()) {
    EXPECT_EQ(session.version(), *pulled) << "the pulled version must be the session's version";
  }
  return pulled;
}

// One of two tasks over a slow network: the first needs 40 s to send its shard, the second is gone.
class SlowNetworkClient final : public VersionedClient {
 public:
  SlowNetworkClient(int shard, FakeClock* clock)
      : VersionedClient(shard, {1}), shard_(shard), clock_(clock) {}

  absl::Status Pull(const ps::PullRequest& request, absl::Duration timeout,
                    PullSink sink) override {
    if (shard_ == 1) return absl::UnavailableError("gone");
    clock_->Advance(absl::Seconds(40));
    return VersionedClient::Pull(request, timeout, std::move(sink));
  }

 private:
  const int shard_;
  FakeClock* const clock_;
};

TEST(PsSessionPullsTest, ALostTaskIsGivenUpAlthoughThePullsFromTheOneBeforeItAreLong) {
  FakeClock clock;
  PsSession session(
      {},
      [&](const std::string& address) {
        return std::make_unique<SlowNetworkClient>(address == "task 0" ? 0 : 1, &clock);
      },
      &clock, nullptr);
  ASSERT_TRUE(session.Connect({"task 0"}).ok());
  std::vector<float> weights(VersionedClient::kShardedElements);
  absl::Status contact;
  for (int i = 0; i < 20 && contact.ok(); ++i) {
    EXPECT_FALSE(session.Pull(1, true, absl::Seconds(1), absl::MakeSpan(weights)).ok());
    contact = session.CheckContact();
    clock.Advance(absl::Seconds(1));
  }
  EXPECT_TRUE(IsPeerLost(contact)) << contact;
  EXPECT_EQ(contact.message(),
            "every pull from ps task 1 at test failed for 328 s (deadline 300 s): gone");
}

// A client of task 0, which announces task 1 at the given address.
class AnnouncingClient final : public RefusingPsClient {
 public:
  AnnouncingClient(std::string address, std::string announced)
      : address_(std::move(address)), announced_(std::move(announced)) {}
  const std::string& address() const override { return address_; }
  absl::StatusOr<ps::JobReply> GetJob(const ps::JobRequest& request, absl::Duration) override {
    ps::JobReply reply = JobOf(request, 2);
    reply.set_addresses(1, announced_);
    return reply;
  }

 private:
  const std::string address_, announced_;
};

// Connects to tasks of which the first announces the second at `announced`. Returns the addresses
// of all clients.
absl::StatusOr<std::vector<std::string>> ConnectTo(
    const std::vector<std::string>& ps, const std::string& announced,
    std::optional<TransportSecurity> security = std::nullopt) {
  SteadyClock clock;
  std::vector<std::string> made;
  PsSession::Options options;
  options.security = std::move(security);
  PsSession session(
      options,
      [&](const std::string& address) {
        made.push_back(address);
        return std::make_unique<AnnouncingClient>(address, announced);
      },
      &clock, nullptr);
  const absl::Status status = session.Connect(ps);
  if (!status.ok()) return status;
  return made;
}

using Addresses = std::vector<std::string>;

TEST(PsSessionConnectTest, TasksThatListenOnAllAddressesHaveTheHostOfTaskZero) {
  for (const char* announced : {"0.0.0.0:2223", "[::]:2223"}) {
    EXPECT_EQ(*ConnectTo({"ps0:2222"}, announced), (Addresses{"ps0:2222", "ps0:2223"}));
    // An address of this machine needs neither TLS nor --insecure.
    EXPECT_EQ(*ConnectTo({"127.0.0.1:2222"}, announced, TransportSecurity()),
              (Addresses{"127.0.0.1:2222", "127.0.0.1:2223"}));
    EXPECT_EQ(*ConnectTo({"ps0:2222", "ps1:9"}, announced), (Addresses{"ps0:2222", "ps1:9"}));
  }
  EXPECT_EQ(*ConnectTo({"ps0:2222"}, "ps1:2222"), (Addresses{"ps0:2222", "ps1:2222"}));
}

// Programs in other languages connect too, so the messages speak neither of flags nor of a worker.
TEST(PsSessionConnectTest, TheNumberOfAddressesIsOneOrThatOfTheTasks) {
  EXPECT_EQ(ConnectTo({}, "ps1:9").status(),
            absl::InvalidArgumentError("no address of a ps task is given"));
  EXPECT_EQ(ConnectTo({"ps0:1", "ps1:2", "ps2:3"}, "ps1:9").status(),
            absl::InvalidArgumentError("3 addresses of ps tasks are given, but the job has 2 "
                                       "tasks; give the first address or all of them"));
}

TEST(PsSessionConnectTest, PlaintextGoesToNoOtherMachineThatTaskZeroAnnounces) {
  const absl::Status refused =
      ConnectTo({"127.0.0.1:2222"}, "192.0.2.1:2223", TransportSecurity()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  for (const char* words : {"ps task 0 at 127.0.0.1:2222 announces task 1 at 192.0.2.1:2223",
                            "--tls_ca", "--insecure"}) {
    EXPECT_TRUE(absl::StrContains(refused.message(), words)) << refused;
  }
  TransportSecurity insecure, tls;
  insecure.insecure = true;
  tls.tls = TlsFiles{"ca", "cert", "key"};
  for (const TransportSecurity& allowed : {insecure, tls}) {
    EXPECT_EQ(ConnectTo({"127.0.0.1:2222"}, "192.0.2.1:2223", allowed)->size(), 2u);
  }
  // The caller has checked the addresses that it names itself.
  EXPECT_EQ(ConnectTo({"127.0.0.1:2222", "ps1:9"}, "192.0.2.1:2223", TransportSecurity())->size(),
            2u);
}

TEST(PsSessionVersionTest, AnAsynchronousPullIsAsOldAsItsOldestShard) {
  EXPECT_EQ(PullVersions({7}, {9}, 3, /*exact=*/false).value(), 7);
  EXPECT_EQ(PullVersions({9}, {7}, 3, /*exact=*/false).value(), 7);
  EXPECT_EQ(PullVersions({8}, {8}, 3, /*exact=*/false).value(), 8);
}

TEST(PsSessionVersionTest, AllChunksOfAShardMustHaveOneVersion) {
  for (const bool exact : {true, false}) {
    EXPECT_EQ(PullVersions({7}, {7}, 7, exact).value(), 7);
    for (const auto& mixed : {std::vector<uint64_t>{7, 8}, {8, 7}}) {
      EXPECT_TRUE(absl::IsDataLoss(PullVersions({7}, mixed, 7, exact).status()));
      EXPECT_TRUE(absl::IsDataLoss(PullVersions(mixed, {7}, 7, exact).status()));
    }
  }
}

TEST(PsSessionVersionTest, AnExactPullRefusesOtherVersions) {
  for (const uint64_t other : {6, 8}) {
    const absl::Status status = PullVersions({7}, {other}, 7, /*exact=*/true).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "expected version 7")) << status;
    EXPECT_TRUE(absl::IsDataLoss(PullVersions({other}, {7}, 7, /*exact=*/true).status()));
  }
}

// Makes a new grant with each registration, and answers heartbeats when a test says so.
class EpochsHandler final : public OneTaskHandler {
 public:
  void Register(const ps::RegisterRequest&, Done<ps::RegisterReply> done) override {
    ps::RegisterReply reply;
    ++grants_;
    if (begins_epochs || epoch_ == 0) ++epoch_;
    reply.set_epoch(epoch_);
    reply.set_version(10 * epoch_);
    reply.set_num_replicas(1);
    reply.set_lease_milliseconds(60000);
    *reply.add_grants() = GrantOf(epoch_, grants_);
    done(reply);
  }
  void Heartbeat(const ps::HeartbeatRequest& request, Done<ps::HeartbeatReply> done) override {
    absl::MutexLock lock(&mutex_);
    epoch_asked_ = request.epoch();
    grants_then_ = grants_;
    waiting_ = std::move(done);
  }
  // Returns false if no heartbeat has come within half a minute.
  bool AwaitHeartbeat() {
    absl::MutexLock lock(&mutex_);
    const auto there = [this]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return waiting_ != nullptr; };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(30));
  }
  // Answers with the epoch and the grant of the moment in which the heartbeat was sent.
  void AnswerHeartbeat(uint64_t version) {
    ps::HeartbeatReply reply;
    Done<ps::HeartbeatReply> done;
    {
      absl::MutexLock lock(&mutex_);
      done = std::exchange(waiting_, nullptr);
      reply.set_epoch(epoch_asked_);
      *reply.add_grants() = GrantOf(epoch_asked_, grants_then_);
    }
    reply.set_version(version);
    done(reply);
  }
  static ps::ReplicaGrant GrantOf(uint64_t epoch, uint64_t number) {
    ps::ReplicaGrant grant;
    grant.set_grant((epoch << 32) | number);
    return grant;
  }

  bool begins_epochs = true;  // each registration begins an epoch

 private:
  uint64_t epoch_ = 0;
  uint64_t grants_ = 0;
  absl::Mutex mutex_;
  uint64_t epoch_asked_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t grants_then_ ABSL_GUARDED_BY(mutex_) = 0;
  Done<ps::HeartbeatReply> waiting_ ABSL_GUARDED_BY(mutex_);
};

// A clone that took the older grant would be fenced at its next push and would register again.
TEST(PsSessionHeartbeatTest, AnAnswerFromBeforeARegistrationBringsNoGrantBack) {
  for (const bool same_epoch : {false, true}) {
    EpochsHandler handler;
    handler.begins_epochs = !same_epoch;
    SteadyClock clock;
    PsSession session(
        {},
        [&](const std::string& address) {
          return MakeInProcessPsClient(&handler, address, nullptr);
        },
        &clock, nullptr);
    const VariableLayout layout = MakeToyLayout();
    ASSERT_TRUE(session.Connect({"task 0"}).ok());
    ASSERT_TRUE(session.Register(layout, /*num_images=*/0).ok());
    for (const bool late : {true, false}) {
      std::thread heartbeat([&] { EXPECT_TRUE(session.Heartbeat({}).ok()); });
      EXPECT_TRUE(handler.AwaitHeartbeat());
      const uint64_t asked_in = session.epoch();
      if (late) {
        EXPECT_TRUE(session.Register(layout, /*num_images=*/0).ok());
      }
      const uint64_t grant = session.grants().at(0).grant();
      handler.AnswerHeartbeat(/*version=*/1000);
      heartbeat.join();
      EXPECT_EQ(session.epoch(), late && !same_epoch ? asked_in + 1 : asked_in);
      ASSERT_EQ(session.grants().size(), 1u);
      EXPECT_EQ(session.grants()[0].grant(), grant);
      EXPECT_EQ(session.version(), late ? 10 * session.epoch() : 1000);
    }
  }
}

class WaitingHandler final : public OneTaskHandler {
 public:
  void Heartbeat(const ps::HeartbeatRequest&, Done<ps::HeartbeatReply> done) override {
    ps::HeartbeatReply reply;
    reply.set_waiting_for("clone 1 of 2");
    done(reply);
  }
};

// What the server said last is of no use to somebody who wonders why training stands still.
TEST(PsSessionHeartbeatTest, AServerThatDoesNotAnswerIsWhatTheCloneWaitsFor) {
  WaitingHandler handler;
  FakeClock clock;
  bool server_is_away = false;
  PsSession session(
      {},
      [&](const std::string& address) {
        return MakeInProcessPsClient(&handler, address, [&](const MessageInfo&) {
          CallFault fault;
          fault.drop_request = server_is_away;
          return fault;
        });
      },
      &clock, nullptr);
  ASSERT_TRUE(session.Connect({"task 0"}).ok());
  EXPECT_EQ(session.waiting_for(), "");
  ASSERT_TRUE(session.Heartbeat({}).ok());
  EXPECT_EQ(session.waiting_for(), "clone 1 of 2");
  server_is_away = true;
  EXPECT_TRUE(absl::IsUnavailable(session.Heartbeat({})));
  clock.Advance(absl::Milliseconds(1));
  EXPECT_EQ(session.waiting_for(), "ps task 0 at task 0");
  server_is_away = false;
  ASSERT_TRUE(session.Heartbeat({}).ok());
  EXPECT_EQ(session.waiting_for(), "clone 1 of 2");
}

// A client that answers as a test says, after the time that a call takes.
class TimedClient final : public RefusingPsClient {
 public:
  TimedClient(FakeClock* clock, std::vector<absl::Duration>* took, const absl::Status* pulled)
      : clock_(clock), took_(took), pulled_(pulled) {}

  absl::StatusOr<ps::JobReply> GetJob(const ps::JobRequest& request, absl::Duration) override {
    if (took_->empty()) return JobOf(request, 1);
    clock_->Advance(took_->front());
    took_->erase(took_->begin());
    return absl::DeadlineExceededError("no answer");
  }
  absl::StatusOr<ps::HeartbeatReply> Heartbeat(const ps::HeartbeatRequest&,
                                               absl::Duration) override {
    return ps::HeartbeatReply();
  }
  absl::Status Pull(const ps::PullRequest&, absl::Duration, PullSink) override { return *pulled_; }

 private:
  FakeClock* const clock_;
  std::vector<absl::Duration>* const took_;  // how long each of the next calls fails
  const absl::Status* const pulled_;
};

class PsSessionPatienceTest : public ::testing::Test {
 protected:
  PsSessionPatienceTest() {
    PsSession::Options options;
    options.peer_deadline = kPatience;
    session_ = std::make_unique<PsSession>(
        options,
        [this](const std::string&) {
          return std::make_unique<TimedClient>(&clock_, &took_, &pulled_);
        },
        &clock_, [this](const std::string& peer) { waits_.push_back(peer); });
  }

  // Repeats a pull that fails once a second, with a heartbeat in between, until the session gives
  // the server up or `seconds` have passed.
  absl::Status PullFor(int seconds) {
    std::vector<float> weights(10);
    for (int i = 0; i < seconds; ++i) {
      EXPECT_FALSE(session_->Pull(0, false, absl::Seconds(1), absl::MakeSpan(weights)).ok());
      EXPECT_TRUE(session_->Heartbeat({}).ok());
      if (const absl::Status status = session_->CheckContact(); !status.ok()) return status;
      clock_.Advance(absl::Seconds(1));
    }
    return absl::OkStatus();
  }

  static constexpr absl::Duration kPatience = absl::Minutes(5);
  FakeClock clock_;
  std::vector<absl::Duration> took_;
  absl::Status pulled_ = absl::UnavailableError("cut");
  std::vector<std::string> waits_;
  std::unique_ptr<PsSession> session_;
};

TEST_F(PsSessionPatienceTest, HeartbeatsDoNotMakeUpForPullsThatFail) {
  ASSERT_TRUE(session_->Connect({"test"}).ok());
  const absl::Duration start = clock_.Now();
  const absl::Status status = PullFor(400);
  EXPECT_TRUE(IsPeerLost(status)) << status;
  EXPECT_EQ(status.message(),
            "every pull from ps task 0 at test failed for 300 s (deadline 300 s): cut");
  EXPECT_EQ(clock_.Now() - start, kPatience);
  ASSERT_FALSE(waits_.empty());
  EXPECT_EQ(waits_.front(), "ps task 0 at test");
}

TEST_F(PsSessionPatienceTest, PullsOfWhichOneSucceedsAreNotGivenUp) {
  ASSERT_TRUE(session_->Connect({"test"}).ok());
  EXPECT_TRUE(PullFor(200).ok());
  // The server answers that it does not have the version yet.
  pulled_ = absl::DeadlineExceededError("not yet");
  EXPECT_TRUE(PullFor(1).ok());
  pulled_ = absl::UnavailableError("cut");
  EXPECT_TRUE(PullFor(200).ok());
  clock_.Advance(absl::Minutes(6));  // without a pull
  EXPECT_TRUE(PullFor(200).ok());
}

// The process was frozen for longer than the peer deadline, so its attempt fails, and nobody knows
// whether the server would have answered.
TEST_F(PsSessionPatienceTest, AServerIsNotGivenUpAfterOneLongAttempt) {
  took_ = {absl::Minutes(6)};
  EXPECT_TRUE(session_->Connect({"test"}).ok());
  EXPECT_EQ(waits_, std::vector<std::string>({"ps task 0 at test"}));
}

TEST_F(PsSessionPatienceTest, TheLogSaysOnceWhyAServerIsWaitedFor) {
  const WarningSink log;
  took_.assign(100, absl::Milliseconds(100));
  EXPECT_TRUE(session_->Connect({"test"}).ok());
  EXPECT_EQ(log.warnings(), std::vector<std::string>({"waiting for ps task 0 at test: no answer"}));
}

TEST_F(PsSessionPatienceTest, TheLogKeepsSilentAboutAShortWait) {
  const WarningSink log;
  took_ = {absl::Milliseconds(100), absl::Milliseconds(100)};
  EXPECT_TRUE(session_->Connect({"test"}).ok());
  EXPECT_TRUE(log.warnings().empty());
}

TEST_F(PsSessionPatienceTest, AServerThatAnswersThatItIsNotReadyIsNotCalledSilent) {
  ASSERT_TRUE(session_->Connect({"test"}).ok());
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::NOT_READY);
  const absl::Status status =
      session_->Retry(0, [&] { return MakeError(detail, "it waits for shard 1 of 2"); });
  EXPECT_TRUE(IsPeerLost(status)) << status;
  EXPECT_EQ(
      status.message(),
      "ps task 0 at test was not ready for 300 s (deadline 300 s): it waits for shard 1 of 2");
  ASSERT_FALSE(waits_.empty());
  EXPECT_EQ(waits_.back(), "ps task 0 at test, which answers: it waits for shard 1 of 2");
}

}  // namespace
}  // namespace pushpull
