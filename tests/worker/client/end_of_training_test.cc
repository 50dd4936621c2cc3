// How a clone waits after the last step until the server confirms that the result is saved, or says
// why training was stopped.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/wire/error_detail.h"
#include "tests/testkit/fake_ps_handler.h"
#include "tests/testkit/in_process_ps_client.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/job/toy_gradient_source.h"
#include "worker/client/clone_trainer.h"

namespace pushpull {
namespace {

// A server that has applied the only step of its job.
class LastStepHandler : public FakePsHandler {
 public:
  void GetJob(const ps::JobRequest& request, Done<ps::JobReply> done) override {
    ps::JobReply reply;
    reply.set_protocol_version(request.protocol_version());
    reply.set_sync(true);
    reply.set_tasks(1);
    reply.add_addresses("task 0");
    done(reply);
  }
  void Register(const ps::RegisterRequest&, Done<ps::RegisterReply> done) override {
    ps::RegisterReply reply;
    reply.set_epoch(1);
    reply.set_version(registered_version);
    reply.set_num_steps(1);
    reply.set_num_replicas(1);
    reply.set_lease_milliseconds(lease_milliseconds);
    done(reply);
  }
  void Heartbeat(const ps::HeartbeatRequest& request, Done<ps::HeartbeatReply> done) override {
    if (lost) return FakePsHandler::Heartbeat(request, std::move(done));  // never answers
    const bool is_last = request.leaving() || request.progress().knows_end();
    if (is_last && last_heartbeats_to_lose.fetch_sub(1) > 0) {
      return done(absl::UnavailableError("lost"));
    }
    if (request.leaving()) heard_that_it_leaves.store(true);
    if (request.progress().knows_end()) heard_that_it_knows.store(true);
    if (request.progress().knows_end() && !saved.load()) heard_too_early.store(true);
    ps::HeartbeatReply reply;
    reply.set_epoch(1);
    reply.set_version(refuses_pulls ? 0 : 1);
    if (tells_reason_beside.has_value()) {
      const bool is_other = std::this_thread::get_id() != *tells_reason_beside;
      if (!is_other) waits_.store(true);
      if (!is_other || told_) return done(absl::UnavailableError("gone"));
      if (waits_.load()) {
        told_ = true;
        reply.set_stopped("clone 1 has a non-finite loss");
      }
    }
    reply.set_waiting_for(waits_for);
    reply.set_training_done(saved.load());
    done(reply);
  }

  CancelFn Pull(const ps::PullRequest& request, Done<PullSnapshot> done) override {
    if (!refuses_pulls) return FakePsHandler::Pull(request, std::move(done));
    ps::ErrorDetail detail;
    detail.set_kind(ps::ErrorDetail::STOPPED);
    done(MakeError(detail, "clone 1 has a non-finite loss"));
    return nullptr;
  }

  bool lost = false;
  // How many heartbeats are lost that say that the clone leaves or knows of the end.
  std::atomic<int> last_heartbeats_to_lose = 0;
  // Whether pulls are told that training was stopped before its only step. Heartbeats are not.
  bool refuses_pulls = false;
  // If set: heartbeats of this thread fail. Once it has sent one, the next heartbeat of another
  // thread is told that training was stopped, and all heartbeats after that fail.
  std::optional<std::thread::id> tells_reason_beside;
  uint64_t lease_milliseconds = 60000;
  std::string waits_for;
  std::atomic<bool> saved{false};
  uint64_t registered_version = 1;               // as a clone hears it when it registers
  std::atomic<bool> heard_that_it_knows{false};  // knows_end of a heartbeat
  std::atomic<bool> heard_that_it_leaves{false};
  std::atomic<bool> heard_too_early{false};  // the same, before anybody said so to the clone

 private:
  std::atomic<bool> waits_{false};  // the first heartbeat of tells_reason_beside has come
  bool told_ = false;               // used by the other thread only
};

// Keeps the first heartbeat until a test answers it, and says in all others how the job ends.
class OvertakingHandler final : public LastStepHandler {
 public:
  explicit OvertakingHandler(absl::StatusOr<ps::HeartbeatReply> end) : end_(std::move(end)) {}

  void Register(const ps::RegisterRequest&, Done<ps::RegisterReply> done) override {
    ps::RegisterReply reply;
    reply.set_epoch(epoch);
    reply.set_lease_milliseconds(60000);
    done(reply);
  }
  void Heartbeat(const ps::HeartbeatRequest&, Done<ps::HeartbeatReply> done) override {
    {
      absl::MutexLock lock(&mutex_);
      if (!std::exchange(has_kept_, true)) {
        kept_ = std::move(done);
        return;
      }
    }
    done(end_);
  }
  void AwaitHeartbeat() {
    absl::MutexLock lock(&mutex_);
    const auto there = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return kept_ != nullptr; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(30)));
  }
  void AnswerHeartbeat(const ps::HeartbeatReply& reply) {
    Done<ps::HeartbeatReply> done;
    {
      absl::MutexLock lock(&mutex_);
      done = std::exchange(kept_, nullptr);
    }
    done(reply);
  }

  uint64_t epoch = 1;

 private:
  const absl::StatusOr<ps::HeartbeatReply> end_;
  absl::Mutex mutex_;
  bool has_kept_ ABSL_GUARDED_BY(mutex_) = false;
  Done<ps::HeartbeatReply> kept_ ABSL_GUARDED_BY(mutex_);
};

// Answers of epoch 1: training goes on, is done, or was stopped.
ps::HeartbeatReply GoesOn() {
  ps::HeartbeatReply reply;
  reply.set_epoch(1);
  return reply;
}
ps::HeartbeatReply IsDone() {
  ps::HeartbeatReply reply = GoesOn();
  reply.set_training_done(true);
  return reply;
}
ps::HeartbeatReply WasStopped() {
  ps::HeartbeatReply reply = GoesOn();
  reply.set_stopped("clone 1 has a non-finite loss");
  return reply;
}

// The server counts a clone as told once it has answered, and may be gone at the next heartbeat.
TEST(EndOfSessionTest, AnOlderAnswerDoesNotTakeBackThatTrainingHasEnded) {
  ps::ErrorDetail evicted;
  evicted.set_kind(ps::ErrorDetail::EVICTED);
  struct Case {
    absl::StatusOr<ps::HeartbeatReply> end;
    bool training_done;
    ps::ErrorDetail::Kind stop_reason;
  };
  for (const Case& c : {Case{IsDone(), true, ps::ErrorDetail::UNKNOWN},
                        Case{WasStopped(), false, ps::ErrorDetail::STOPPED},
                        Case{MakeError(evicted, "evicted"), false, ps::ErrorDetail::EVICTED}}) {
    OvertakingHandler handler(c.end);
    SteadyClock clock;
    PsSession session(
        {}, [&](const std::string& address) { return MakeInProcessPsClient(&handler, address); },
        &clock, nullptr);
    const VariableLayout layout = MakeToyLayout();
    ASSERT_TRUE(session.Connect({"task 0"}).ok());
    ASSERT_TRUE(session.Register(layout, /*num_images=*/0).ok());
    const auto holds = [&] {
      return session.training_done() == c.training_done &&
             GetErrorDetail(session.stop_reason()).kind() == c.stop_reason;
    };
    std::thread overtaken([&] { EXPECT_TRUE(session.Heartbeat({}).ok()); });
    handler.AwaitHeartbeat();
    session.Heartbeat({}).IgnoreError();
    EXPECT_TRUE(holds());
    handler.AnswerHeartbeat(GoesOn());
    overtaken.join();
    EXPECT_TRUE(holds()) << "an older answer must not count";
    ASSERT_TRUE(session.Register(layout, /*num_images=*/0).ok());
    EXPECT_TRUE(holds()) << "the answer to an older call must not count";
    handler.epoch = 2;
    ASSERT_TRUE(session.Register(layout, /*num_images=*/0).ok());
    EXPECT_FALSE(session.training_done()) << "a later epoch may have more to train";
    EXPECT_TRUE(session.stop_reason().ok()) << session.stop_reason();
  }
}

// The server has gone back to an earlier version while the answer was on its way.
TEST(EndOfSessionTest, TheEndOfAnEarlierEpochDoesNotCount) {
  for (const ps::HeartbeatReply& late : {IsDone(), WasStopped()}) {
    OvertakingHandler handler(GoesOn());
    SteadyClock clock;
    PsSession session(
        {}, [&](const std::string& address) { return MakeInProcessPsClient(&handler, address); },
        &clock, nullptr);
    const VariableLayout layout = MakeToyLayout();
    ASSERT_TRUE(session.Connect({"task 0"}).ok());
    ASSERT_TRUE(session.Register(layout, /*num_images=*/0).ok());
    std::thread overtaken([&] { session.Heartbeat({}).IgnoreError(); });
    handler.AwaitHeartbeat();
    handler.epoch = 2;
    EXPECT_TRUE(session.Register(layout, /*num_images=*/0).ok());
    handler.AnswerHeartbeat(late);
    overtaken.join();
    EXPECT_FALSE(session.training_done());
    EXPECT_TRUE(session.stop_reason().ok()) << session.stop_reason();
  }
}

class EndOfTrainingTest : public ::testing::Test {
 protected:
  absl::Status Run() {
    PsSession::Options options;
    options.peer_deadline = peer_deadline_;
    options.rpc_timeout = absl::Milliseconds(50);
    PsSession session(
        options,
        [this](const std::string& address) {
          return MakeInProcessPsClient(&handler_, address, [this](const MessageInfo& message) {
            CallFault fault;
            if (message.method != "Pull") return fault;
            if (stops_at_first_pull_) trainer_->Stop();
            fault.drop_request = stops_at_first_pull_ || !handler_.refuses_pulls;
            if (fault.drop_request) {
              absl::SleepFor(absl::Milliseconds(50));  // a heartbeat might say so meanwhile
              knew_before_pull_ |= handler_.heard_that_it_knows.load();
            }
            return fault;
          });
        },
        &clock_, nullptr);
    EXPECT_TRUE(session.Connect({"task 0"}).ok());
    const VariableLayout layout = MakeToyLayout();
    ToyGradientSource source(&layout, 1);
    CloneTrainerOptions training;
    training.pull_last_weights = true;
    CloneTrainer trainer(
        &session, &source, &layout, &clock_,
        [this](const CloneReport& report) {
          waits_.push_back(report.waiting_for);
          handler_.saved.store(true);
        },
        training);
    trainer_ = &trainer;
    const TrainerDeadline deadline(&trainer);
    return trainer.Run();
  }

  absl::Duration peer_deadline_ = absl::Milliseconds(200);
  SteadyClock clock_;
  LastStepHandler handler_;
  std::vector<std::string> waits_;
  CloneTrainer* trainer_ = nullptr;
  bool stops_at_first_pull_ = false;  // the first pull is lost, and the clone is told to stop
  bool knew_before_pull_ = false;     // the server heard that the clone knows before it pulled
};

TEST_F(EndOfTrainingTest, AServerThatIsLostBeforeItConfirmsTheEndIsAnError) {
  handler_.lost = true;
  const absl::Status status = Run();
  EXPECT_TRUE(IsPeerLost(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "ps task 0 at task 0 did not answer for"))
      << status;
}

TEST_F(EndOfTrainingTest, AReasonThatOnlyTheHeartbeatThreadHearsEndsTheWait) {
  handler_.tells_reason_beside = std::this_thread::get_id();
  handler_.lease_milliseconds = 4;  // so that the heartbeat thread sends many
  peer_deadline_ = absl::Seconds(10);
  const absl::Status status = Run();
  EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::STOPPED) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "non-finite loss")) << status;
  EXPECT_TRUE(handler_.heard_that_it_knows.load());
}

TEST_F(EndOfTrainingTest, TheServerHearsThatTheCloneKnowsIfOnlyTheTrainingThreadWasTold) {
  handler_.refuses_pulls = true;
  handler_.registered_version = 0;
  peer_deadline_ = absl::Seconds(10);
  const absl::Status status = Run();
  EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::STOPPED) << status;
  EXPECT_TRUE(handler_.heard_that_it_knows.load());
}

// A server that does not hear this waits for the clone until its lease has ended.
TEST_F(EndOfTrainingTest, TheServerHearsThatTheCloneKnows) {
  absl::Status status = Run();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(handler_.heard_that_it_knows.load()) << "after the clone's last step";
  EXPECT_FALSE(handler_.heard_too_early.load());
  handler_.heard_that_it_knows.store(false);
  handler_.registered_version = 0;
  handler_.saved.store(true);
  peer_deadline_ = absl::Seconds(10);
  status = Run();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(handler_.heard_that_it_knows.load()) << "if the heartbeat thread heard of the end";
  EXPECT_FALSE(knew_before_pull_) << "the server may end before the clone has the last weights";
}

TEST_F(EndOfTrainingTest, ACloneThatIsToldToStopSaysThatItLeaves) {
  peer_deadline_ = absl::Seconds(10);
  stops_at_first_pull_ = true;
  handler_.registered_version = 0;
  handler_.refuses_pulls = true;  // so that the heartbeats do not say that the last step is applied
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(handler_.heard_that_it_leaves.load());
  EXPECT_FALSE(handler_.heard_that_it_knows.load());
}

TEST_F(EndOfTrainingTest, TheLastHeartbeatIsRepeatedIfItIsLost) {
  handler_.last_heartbeats_to_lose.store(3);
  absl::Status status = Run();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(handler_.heard_that_it_knows.load()) << "of a clone that trains to the end";

  handler_.last_heartbeats_to_lose.store(3);
  handler_.registered_version = 0;
  handler_.saved.store(false);
  handler_.refuses_pulls = true;
  peer_deadline_ = absl::Seconds(10);
  stops_at_first_pull_ = true;
  status = Run();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(handler_.heard_that_it_leaves.load()) << "of a clone that is told to stop";
}

TEST_F(EndOfTrainingTest, ACloneThatTrainsToTheEndDoesNotSayThatItLeaves) {
  const absl::Status status = Run();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_FALSE(handler_.heard_that_it_leaves.load());
}

// The pull of the last weights fails in these tests. The clone does not repeat it, so it must not
// name the task that it pulled from.
TEST_F(EndOfTrainingTest, TheCloneReportsForWhatItWaits) {
  for (const std::string waits_for : {"shard 1 of 2", ""}) {
    waits_.clear();
    handler_.saved.store(false);
    handler_.waits_for = waits_for;
    const absl::Status status = Run();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(waits_, std::vector<std::string>(
                          {waits_for.empty() ? std::string("the last checkpoint") : waits_for}));
  }
}

}  // namespace
}  // namespace pushpull
