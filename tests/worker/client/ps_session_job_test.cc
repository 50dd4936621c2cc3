// How a session treats a server that has other settings than GetJob told, or a long lease.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/model/sharding.h"
#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"
#include "tests/testkit/fake_clock.h"
#include "tests/testkit/job/toy_gradient_source.h"
#include "tests/testkit/refusing_ps_client.h"
#include "worker/client/ps_session.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

// What the server of the test does.
struct Behaviour {
  uint32_t protocol_version = kProtocolVersion;
  std::string fingerprint = "one";  // that it has now
  std::string run_id = "first run";
  absl::Duration lease;        // as it tells
  absl::Duration away;         // when it begins to answer registrations
  absl::Duration held;         // when the lease of another session in the clone's place ends
  int chunks = 0;              // that each pull sends
  std::string told_by_clone;   // RegisterRequest.job_fingerprint
  bool has_forgotten = false;  // the clone, and says so to its heartbeats
  std::function<void()> on_heartbeat;  // called before the answer
  absl::Duration heartbeat_timeout;    // of the last heartbeat
};

absl::Status WrongRun() {
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::WRONG_RUN);
  return MakeError(detail, "another run_id");
}

class BehavingClient final : public RefusingPsClient {
 public:
  BehavingClient(const FakeClock* clock, Behaviour* behaviour)
      : clock_(clock), behaviour_(behaviour) {}

  absl::StatusOr<ps::JobReply> GetJob(const ps::JobRequest&, absl::Duration) override {
    ps::JobReply reply;
    reply.set_protocol_version(behaviour_->protocol_version);
    reply.set_tasks(1);
    reply.add_addresses("test");
    reply.set_fingerprint(behaviour_->fingerprint);
    reply.set_run_id(behaviour_->run_id);
    reply.set_lease_milliseconds(absl::ToInt64Milliseconds(behaviour_->lease));
    return reply;
  }
  absl::StatusOr<ps::RegisterReply> Register(const ps::RegisterRequest& request,
                                             absl::Duration) override {
    if (clock_->Now() < behaviour_->away) return absl::UnavailableError("no route to host");
    if (request.run_id() != behaviour_->run_id) return WrongRun();
    behaviour_->told_by_clone = request.job_fingerprint();
    if (request.job_fingerprint() != behaviour_->fingerprint) {
      ps::ErrorDetail detail;
      detail.set_kind(ps::ErrorDetail::JOB_CHANGED);
      return MarkPassing(MakeError(detail, "other settings"));
    }
    if (clock_->Now() < behaviour_->held) return absl::AlreadyExistsError("clone 0 is host:1");
    ps::RegisterReply reply;
    reply.set_lease_milliseconds(absl::ToInt64Milliseconds(behaviour_->lease));
    return reply;
  }
  absl::StatusOr<ps::DeclareReply> DeclareVariables(const ps::DeclareRequest& request,
                                                    absl::Duration) override {
    if (request.run_id() != behaviour_->run_id) return WrongRun();
    ps::DeclareReply reply;
    reply.set_declared(true);
    return reply;
  }
  absl::StatusOr<ps::HeartbeatReply> Heartbeat(const ps::HeartbeatRequest&,
                                               absl::Duration timeout) override {
    behaviour_->heartbeat_timeout = timeout;
    if (behaviour_->on_heartbeat) behaviour_->on_heartbeat();
    if (!behaviour_->has_forgotten) return ps::HeartbeatReply();
    ps::ErrorDetail detail;
    detail.set_kind(ps::ErrorDetail::EPOCH_CHANGED);
    return MakeError(detail, "register again");
  }
  absl::Status Pull(const ps::PullRequest& request, absl::Duration, PullSink sink) override {
    for (int chunk = 0; chunk < behaviour_->chunks; ++chunk) {
      ps::PullChunk header;
      header.set_chunk(chunk);
      header.set_encoding(request.encoding());
      const absl::StatusOr<char*> to = sink(header, Sharding::kFirstChunkElements * sizeof(float));
      if (!to.ok()) return to.status();
      std::fill_n(*to, Sharding::kFirstChunkElements * sizeof(float), '\0');
    }
    return absl::OkStatus();
  }

 private:
  const FakeClock* const clock_;
  Behaviour* const behaviour_;
};

class PsSessionJobTest : public ::testing::Test {
 protected:
  absl::Status TryToConnect() {
    session_ = std::make_unique<PsSession>(
        PsSession::Options(),
        [this](const std::string&) {
          return std::make_unique<BehavingClient>(&clock_, &behaviour_);
        },
        &clock_, nullptr);
    return session_->Connect({"test"});
  }
  void Connect() { ASSERT_EQ(TryToConnect(), absl::OkStatus()); }
  absl::Status Register() { return session_->Register(layout_, /*num_images=*/0); }

  FakeClock clock_;
  Behaviour behaviour_;
  const VariableLayout layout_ = MakeToyLayout();
  std::unique_ptr<PsSession> session_;
};

TEST_F(PsSessionJobTest, AServerOfAnotherReleaseIsRefusedWithAWordAboutWhatToUpgrade) {
  for (const bool server_is_newer : {false, true}) {
    behaviour_.protocol_version = kProtocolVersion + (server_is_newer ? 1 : -1);
    const absl::Status status = TryToConnect();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat(" speaks protocol version ", behaviour_.protocol_version,
                                       ", this program speaks ", kProtocolVersion, ": upgrade ",
                                       server_is_newer ? "this program to" : "ps task 0")));
  }
}

TEST_F(PsSessionJobTest, AServerThatComesBackWithOtherSettingsIsNotWaitedFor) {
  Connect();
  EXPECT_EQ(Register(), absl::OkStatus());
  EXPECT_EQ(behaviour_.told_by_clone, "one");
  behaviour_.fingerprint = "two";
  const absl::Duration begun = clock_.Now();
  const absl::Status changed = Register();
  EXPECT_EQ(GetErrorDetail(changed).kind(), ps::ErrorDetail::JOB_CHANGED) << changed;
  EXPECT_TRUE(IsPassing(changed));
  EXPECT_EQ(clock_.Now(), begun);
  Connect();  // as a new process does
  EXPECT_EQ(Register(), absl::OkStatus());
}

// A server writes run_id when it begins its first epoch or has the variables. If it is started
// again before that, it draws another one.
TEST_F(PsSessionJobTest, ACloneThatHasNotRegisteredGoesOverToTheNextRunOfTheJob) {
  Connect();
  behaviour_.run_id = "second run";
  absl::StatusOr<ps::DeclareReply> declared = session_->Declare({});
  EXPECT_TRUE(IsTransient(declared.status())) << declared.status();
  EXPECT_EQ(session_->run_id(), "second run");
  EXPECT_TRUE(session_->Declare({}).ok());
  behaviour_.run_id = "third run";
  EXPECT_EQ(Register(), absl::OkStatus());
  EXPECT_EQ(session_->run_id(), "third run");
  behaviour_.run_id = "a run to which this clone has not contributed";
  const absl::Status refused = Register();
  EXPECT_EQ(GetErrorDetail(refused).kind(), ps::ErrorDetail::WRONG_RUN) << refused;
}

TEST_F(PsSessionJobTest, ACloneThatHasNotRegisteredDoesNotGoOverToARunWithOtherSettings) {
  Connect();
  behaviour_.run_id = "second run";
  behaviour_.fingerprint = "two";
  const absl::Status refused = Register();
  EXPECT_EQ(GetErrorDetail(refused).kind(), ps::ErrorDetail::JOB_CHANGED) << refused;
  EXPECT_TRUE(IsPassing(refused)) << "the clone's program can be started again";
}

TEST_F(PsSessionJobTest, AnotherSessionIsWaitedForUntilItsLeaseHasEnded) {
  behaviour_.lease = absl::Seconds(60);
  behaviour_.held = clock_.Now() + absl::Seconds(59);
  Connect();
  EXPECT_EQ(Register(), absl::OkStatus());
  EXPECT_GE(clock_.Now(), behaviour_.held);
}

TEST_F(PsSessionJobTest, ATimeWithoutTheServerDoesNotShortenTheWaitForAnotherSession) {
  behaviour_.lease = absl::Seconds(10);
  behaviour_.away = clock_.Now() + absl::Seconds(60);
  behaviour_.held = behaviour_.away + absl::Seconds(9);
  Connect();
  EXPECT_EQ(Register(), absl::OkStatus());
  EXPECT_GE(clock_.Now(), behaviour_.held);
}

TEST_F(PsSessionJobTest, AnotherSessionThatRenewsItsLeaseEndsTheWait) {
  behaviour_.held = absl::InfiniteDuration();
  for (const absl::Duration lease : {absl::Seconds(10), absl::Seconds(60)}) {
    behaviour_.lease = lease;
    Connect();
    const absl::Duration begun = clock_.Now();
    EXPECT_TRUE(absl::IsAlreadyExists(Register()));
    const absl::Duration waited = clock_.Now() - begun;
    EXPECT_GE(waited, std::max(lease, absl::Seconds(30)));
    EXPECT_LE(waited, std::max(lease, absl::Seconds(30)) + absl::Seconds(7));
  }
}

TEST_F(PsSessionJobTest, AHeartbeatMayHearThatTheCloneHasToRegister) {
  Connect();
  EXPECT_EQ(Register(), absl::OkStatus());
  EXPECT_EQ(session_->Heartbeat({}), absl::OkStatus());
  EXPECT_FALSE(session_->has_to_register());
  behaviour_.has_forgotten = true;
  EXPECT_FALSE(session_->Heartbeat({}).ok());
  EXPECT_TRUE(session_->has_to_register());
  behaviour_.has_forgotten = false;
  EXPECT_EQ(session_->Heartbeat({}), absl::OkStatus());
  EXPECT_TRUE(session_->has_to_register()) << "it has not done so yet";
  EXPECT_EQ(Register(), absl::OkStatus());
  EXPECT_FALSE(session_->has_to_register());
}

// One that arrives after the lease has ended is useless.
TEST_F(PsSessionJobTest, AHeartbeatWaitsNoLongerThanTheLease) {
  for (const auto& [lease, timeout] :
       {std::pair(absl::Milliseconds(5), absl::Seconds(1)),
        std::pair(absl::Seconds(10), absl::Seconds(10)),
        std::pair(absl::Hours(1), PsSession::Options().rpc_timeout)}) {
    behaviour_.lease = lease;
    Connect();
    EXPECT_EQ(Register(), absl::OkStatus());
    EXPECT_EQ(session_->Heartbeat({}), absl::OkStatus());
    EXPECT_EQ(behaviour_.heartbeat_timeout, timeout) << lease;
  }
}

// Another registration would void the grants of that one.
TEST_F(PsSessionJobTest, AnAnswerOlderThanTheRegistrationDoesNotAskForAnother) {
  Connect();
  EXPECT_EQ(Register(), absl::OkStatus());
  behaviour_.has_forgotten = true;
  behaviour_.on_heartbeat = [this] { EXPECT_EQ(Register(), absl::OkStatus()); };
  EXPECT_FALSE(session_->Heartbeat({}).ok());
  EXPECT_FALSE(session_->has_to_register());
}

// Such as a task that has another part of the variables since it was started again.
TEST_F(PsSessionJobTest, ATaskThatAlwaysSendsTooFewChunksIsGivenUpAtTheDeadline) {
  Connect();
  behaviour_.chunks = 1;
  std::vector<float> weights(Sharding::kFirstChunkElements + 10);  // two chunks
  const absl::Duration begun = clock_.Now();
  absl::Status contact;
  while (contact.ok() && clock_.Now() - begun < absl::Minutes(10)) {
    const auto pulled =
        session_->Pull(0, /*exact=*/false, absl::Seconds(1), absl::MakeSpan(weights));
    EXPECT_TRUE(absl::IsUnavailable(pulled.status())) << pulled.status();
    contact = session_->CheckContact();
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_TRUE(IsPeerLost(contact)) << contact;
  EXPECT_THAT(std::string(contact.message()), HasSubstr("sent 1 of 2 chunks"));
}

}  // namespace
}  // namespace pushpull
