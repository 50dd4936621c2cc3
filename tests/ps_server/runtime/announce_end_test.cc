// What the processes of a job's tasks know of each other: how long that of task 0 tells the others
// of the end of the job, and what these do when it does not answer or is gone.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/checkpoint/train_dir.h"
#include "common/wire/error_detail.h"
#include "ps_server/core/coordinator_options.h"
#include "ps_server/runtime/server_core.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/warning_sink.h"

namespace pushpull {
namespace {

// Like FakeClock, but the threads of a server may read it.
class SharedFakeClock final : public Clock {
 public:
  absl::Duration Now() const override { return absl::Nanoseconds(now_.load()); }
  void Sleep(absl::Duration duration) override { now_ += absl::ToInt64Nanoseconds(duration); }

 private:
  std::atomic<int64_t> now_{absl::ToInt64Nanoseconds(absl::Seconds(1000))};
};

// The shard of a machine that is gone.
class LostPeer final : public ShardPeer {
 public:
  LostPeer(int* told, ps::EndTaskRequest* order) : told_(told), order_(order) {}
  void Call(const ShardCall&, Done) override {}
  void Close(const absl::Status&) override {}
  void Stop() override {}
  absl::Status EndTask(const ps::EndTaskRequest& order) override {
    ++*told_;
    *order_ = order;
    return absl::UnavailableError("no route to host");
  }

 private:
  int* const told_;
  ps::EndTaskRequest* const order_;
};

class AnnounceEndTest : public ::testing::Test {
 protected:
  AnnounceEndTest() {
    ServerCoreOptions options;
    options.train_dir = folder_.path() + "/train";
    options.lease = 4 * limit_;
    auto core =
        ServerCore::Open(JobSpec::Create(MakeTinyConfig(""), true, 2), options, &files_, &clock_);
    EXPECT_TRUE(core.ok()) << core.status();
    core_ = *std::move(core);
    std::vector<std::unique_ptr<ShardPeer>> remote;
    remote.push_back(std::make_unique<LostPeer>(&told_, &order_));
    core_->Start({"task 0", "task 1"}, std::move(remote), [] {});
  }
  // Returns how long AnnounceEnd blocks if it begins this long after `drain`.
  absl::Duration AnnouncementAfter(absl::Duration drain_time, const std::function<void()>& drain) {
    drain();
    const absl::Status end = core_->WaitForEnd(absl::Seconds(60)).value_or(absl::OkStatus());
    EXPECT_TRUE(absl::IsCancelled(end)) << end;
    clock_.Sleep(drain_time);
    const absl::Duration start = clock_.Now();
    core_->AnnounceEnd(end);
    return clock_.Now() - start;
  }

  const absl::Duration limit_ = CoordinatorOptions().drain_limit;
  TestFolder folder_;
  PosixFileSystem files_;
  SharedFakeClock clock_;
  int told_ = 0;              // how often the peer was told
  ps::EndTaskRequest order_;  // what it was told last
  std::unique_ptr<ServerCore> core_;
};

TEST_F(AnnounceEndTest, ADrainThatWasShortLeavesTimeForTasksThatDoNotAnswer) {
  const WarningSink sink;
  const absl::Duration drain_time = absl::Seconds(3);
  const absl::Duration took = AnnouncementAfter(drain_time, [this] { core_->Drain(); });
  EXPECT_GE(took, limit_ - drain_time);
  EXPECT_LE(took, limit_ - drain_time + absl::Seconds(1));
  EXPECT_GT(told_, 10);
  const auto named = [](const std::string& line) {
    return absl::StrContains(line, "ps task 1 has not heard of the end and is told again") &&
           absl::StrContains(line, "no route to host");
  };
  const std::vector<std::string> infos = sink.infos();
  EXPECT_EQ(std::count_if(infos.begin(), infos.end(), named), 1);
}

// A scheduler sends SIGKILL 30 seconds after SIGTERM.
TEST_F(AnnounceEndTest, ADrainThatHasTakenItsWholeTimeLeavesOneAttempt) {
  EXPECT_EQ(AnnouncementAfter(limit_, [this] { core_->Drain(); }), absl::ZeroDuration());
  EXPECT_EQ(told_, 1);
}

TEST_F(AnnounceEndTest, ADrainByAnAdministratorHasTheSameLimit) {
  const auto drain = [this] {
    core_->handler(0)->Drain({}, [](const auto& reply) { EXPECT_TRUE(reply.ok()); });
  };
  EXPECT_EQ(AnnouncementAfter(limit_, drain), absl::ZeroDuration());
  EXPECT_EQ(told_, 1);
}

// An order whose reason is not UTF-8 could not be sent, and the task would wait.
TEST_F(AnnounceEndTest, TheReasonMayNameAFileWithAnyBytes) {
  const absl::Status end = absl::InternalError("/data/M\xfcller: input/output error");
  core_->End(end);
  core_->AnnounceEnd(end);
  EXPECT_EQ(order_.how(), ps::EndTaskRequest::STOPPED);
  EXPECT_EQ(order_.reason(), "/data/M\xef\xbf\xbdller: input/output error");
}

// A checkpoint is read at the speed of the disk, and calls that end the server come meanwhile.
TEST(ServerCoreEndTest, NoOtherThreadWaitsWhileTheLastCheckpointIsRead) {
  TestFolder folder;
  PosixFileSystem disk;
  FailingReads files(&disk);
  TestServerOptions options;
  options.files = &files;
  TestServer server(folder, options);
  absl::Notification called;
  bool has_waited = true;
  std::thread other;
  files.Fail(FailingReads::What::kOpen, "/MANIFEST.json", absl::OkStatus(), 1);
  files.AtFailure([&] {
    other = std::thread([&] {
      server.core().End(absl::OkStatus());
      called.Notify();
    });
    has_waited = !called.WaitForNotificationWithTimeout(absl::Seconds(10));
  });
  ASSERT_TRUE(server.Start().ok());
  EXPECT_TRUE(absl::IsCancelled(TrainAndDrainInStep(&server, 5)));
  ASSERT_TRUE(other.joinable()) << "the checkpoint was not read back";
  other.join();
  EXPECT_FALSE(has_waited);
}

ServerCoreOptions OptionsOfTask1(const std::string& train_dir) {
  ServerCoreOptions options;
  options.train_dir = train_dir;
  options.first_task = 1;
  options.run_id = std::string(16, 'r');
  return options;
}

// Returns how long task 1 stays after SIGTERM if each of its calls to drain the job takes four
// seconds, ends with `answer`, and nobody ends the job.
absl::Duration DrainOfTask1(const absl::Status& answer) {
  TestFolder folder;
  PosixFileSystem files;
  SharedFakeClock clock;
  ServerCoreOptions options = OptionsOfTask1(folder.path() + "/train");
  options.drain_job = [&] {
    clock.Sleep(absl::Seconds(4));
    return answer;
  };
  auto core =
      ServerCore::Open(JobSpec::Create(MakeTinyConfig(""), true, 2), options, &files, &clock);
  EXPECT_TRUE(core.ok()) << core.status();
  const absl::Duration start = clock.Now();
  (*core)->Drain();
  const absl::Status end = (*core)->WaitForEnd(absl::Seconds(60)).value_or(absl::OkStatus());
  EXPECT_TRUE(absl::IsCancelled(end)) << end;
  return clock.Now() - start;
}

TEST(DrainOfATaskTest, WaitsForTask0AsLongAsItAnswersButNotUntilSigkill) {
  EXPECT_EQ(DrainOfTask1(absl::OkStatus()), absl::Seconds(28));
  ps::ErrorDetail not_ready;
  not_ready.set_kind(ps::ErrorDetail::NOT_READY);
  EXPECT_EQ(DrainOfTask1(MakeError(not_ready, "starting")), absl::Seconds(28));
  EXPECT_EQ(DrainOfTask1(absl::UnavailableError("no route to host")), absl::Seconds(8))
      << "the first attempt that ends after five seconds of silence is the last one";
  ps::ErrorDetail wrong_run;
  wrong_run.set_kind(ps::ErrorDetail::WRONG_RUN);
  EXPECT_EQ(DrainOfTask1(MakeError(wrong_run, "another job")), absl::Seconds(4));
}

TEST(SilentCoordinatorTest, ATaskNoticesThatTask0IsGoneUntilTheJobHasEnded) {
  TestFolder folder;
  PosixFileSystem files;
  SharedFakeClock clock;
  auto core = ServerCore::Open(JobSpec::Create(MakeTinyConfig(""), true, 2),
                               OptionsOfTask1(folder.path() + "/train"), &files, &clock);
  ASSERT_TRUE(core.ok()) << core.status();
  EXPECT_FALSE((*core)->CoordinatorIsSilent());
  clock.Sleep(absl::Seconds(6));
  EXPECT_TRUE((*core)->CoordinatorIsSilent());
  (*core)->handler(0)->GetShardState({}, [](const auto& reply) { EXPECT_TRUE(reply.ok()); });
  EXPECT_FALSE((*core)->CoordinatorIsSilent());
  clock.Sleep(absl::Seconds(4));
  EXPECT_FALSE((*core)->CoordinatorIsSilent());
  clock.Sleep(absl::Seconds(4));
  EXPECT_TRUE((*core)->CoordinatorIsSilent());
  (*core)->End(absl::OkStatus());
  EXPECT_FALSE((*core)->CoordinatorIsSilent());
}

// Orders the shard of task 1 to take its initial values, and calls on_restored afterwards.
void RestoreTask1(ServerCore* core, const std::string& run_id,
                  const std::function<void()>& on_restored, uint64_t epoch = 1) {
  ps::RestoreRequest order;
  order.set_run_id(run_id);
  order.set_epoch(epoch);
  order.set_source(ps::RestoreRequest::INITIAL);
  core->handler(0)->Restore(order, [on_restored](const auto& reply) {
    EXPECT_TRUE(reply.ok()) << reply.status();
    on_restored();
  });
}

// A large shard is restored for longer than task 0 may be silent.
TEST(SilentCoordinatorTest, ATaskThatIsBeingRestoredDoesNotTakeTask0ForGone) {
  TestFolder folder;
  PosixFileSystem files;
  SharedFakeClock clock;
  ServerCoreOptions options = OptionsOfTask1(folder.path() + "/train");
  absl::Notification restoring, waited, restored;
  options.may_restore = [&] {
    restoring.Notify();
    waited.WaitForNotification();
    return absl::OkStatus();
  };
  auto core =
      ServerCore::Open(JobSpec::Create(MakeTinyConfig(""), true, 2), options, &files, &clock);
  ASSERT_TRUE(core.ok()) << core.status();
  RestoreTask1(core->get(), options.run_id, [&] { restored.Notify(); });
  restoring.WaitForNotification();
  clock.Sleep(absl::Seconds(60));
  EXPECT_FALSE((*core)->CoordinatorIsSilent());
  waited.Notify();
  restored.WaitForNotification();
  EXPECT_FALSE((*core)->CoordinatorIsSilent()) << "it has waited for the answer until now";
  clock.Sleep(absl::Seconds(6));
  EXPECT_TRUE((*core)->CoordinatorIsSilent());
}

// Trains with all tasks in `server` to the end, and returns the options of another task 1 of that
// run.
ServerCoreOptions OptionsInFinishedRun(TestServer* server, absl::Duration lease) {
  EXPECT_TRUE(server->Start().ok());
  std::thread training([server] { TrainWithClones(server, 1); });
  EXPECT_TRUE(server->WaitAndClose().ok());
  training.join();
  ServerCoreOptions options = OptionsOfTask1(server->train_dir());
  options.lease = lease;
  options.run_id = absl::HexStringToBytes(ReadRunId(server->files(), server->train_dir())->value());
  return options;
}

// Task 0 may have ended with the run, and nobody else could tell this task.
TEST(SilentCoordinatorTest, ATaskThatHearsNothingEndsWithAFinishedRun) {
  constexpr absl::Duration kLease = absl::Seconds(10);
  TestFolder folder;
  TestServer server(folder, {.tasks = 2});
  ServerCoreOptions options = OptionsInFinishedRun(&server, kLease);
  for (const bool is_restored : {false, true}) {
    for (const bool from_checkpoint : {false, true}) {
      options.from_checkpoint = from_checkpoint;
      SharedFakeClock clock;
      auto core = ServerCore::Open(server.job(), options, &server.files(), &clock);
      ASSERT_TRUE(core.ok()) << core.status();
      if (is_restored) {
        absl::Notification restored;
        RestoreTask1(core->get(), options.run_id, [&] { restored.Notify(); });
        restored.WaitForNotification();
      }
      EXPECT_FALSE((*core)->WaitForEnd(absl::ZeroDuration()).has_value()) << "task 0 is not silent";
      clock.Sleep(kLease);
      const std::optional<absl::Status> end = (*core)->WaitForEnd(absl::ZeroDuration());
      if (from_checkpoint && !is_restored) {
        EXPECT_FALSE(end.has_value()) << "the run goes back, so it is not finished";
      } else {
        EXPECT_EQ(end, absl::OkStatus());
        EXPECT_FALSE((*core)->end_wanted()) << "--exit_when_done=false";
      }
    }
  }
}

// Task 0 may die after it has restored this task and before it has renamed the checkpoints that
// --from_checkpoint gives up.
TEST(SilentCoordinatorTest, AnEndThatTheRunHasGoneBackBehindIsNoEnd) {
  TestFolder folder;
  TestServer server(folder, {.tasks = 2});
  ServerCoreOptions options = OptionsInFinishedRun(&server, absl::Seconds(10));
  options.from_checkpoint = true;
  SharedFakeClock clock;
  auto core = ServerCore::Open(server.job(), options, &server.files(), &clock);
  ASSERT_TRUE(core.ok()) << core.status();
  absl::Notification restored;
  RestoreTask1(
      core->get(), options.run_id, [&] { restored.Notify(); }, /*epoch=*/2);
  restored.WaitForNotification();
  clock.Sleep(options.lease);
  EXPECT_FALSE((*core)->WaitForEnd(absl::ZeroDuration()).has_value());
}

// Task 0 is silent from the last step on. It tells the other tasks of the end after half of a lease
// at the latest, because clones may still pull the last weights.
TEST(SilentCoordinatorTest, ATaskDoesNotEndWithAFinishedRunBeforeTask0CouldTellIt) {
  constexpr absl::Duration kLease = absl::Seconds(60);
  TestFolder folder;
  TestServer server(folder, {.tasks = 2});
  const ServerCoreOptions options = OptionsInFinishedRun(&server, kLease);
  SharedFakeClock clock;
  auto core = ServerCore::Open(server.job(), options, &server.files(), &clock);
  ASSERT_TRUE(core.ok()) << core.status();
  clock.Sleep(kLease);
  (*core)->handler(0)->GetShardState({}, [](const auto& reply) { EXPECT_TRUE(reply.ok()); });
  clock.Sleep(kLease / 2);
  EXPECT_FALSE((*core)->WaitForEnd(absl::ZeroDuration()).has_value());
  clock.Sleep(kLease / 2);
  EXPECT_TRUE((*core)->WaitForEnd(absl::ZeroDuration()).has_value());
}

// With --exit_when_done=false the task is still there when task 0 comes back, perhaps with a
// raised limit.
TEST(SilentCoordinatorTest, AnEndThatATaskHasFoundHoldsUntilTask0GivesOrdersAgain) {
  TestFolder folder;
  TestServer server(folder, {.tasks = 2});
  const ServerCoreOptions options = OptionsInFinishedRun(&server, absl::Seconds(10));
  SharedFakeClock clock;
  auto core = ServerCore::Open(server.job(), options, &server.files(), &clock);
  ASSERT_TRUE(core.ok()) << core.status();
  clock.Sleep(options.lease);
  EXPECT_TRUE((*core)->WaitForEnd(absl::ZeroDuration()).has_value());
  absl::Notification restored;
  RestoreTask1(core->get(), options.run_id, [&] { restored.Notify(); });
  restored.WaitForNotification();
  EXPECT_FALSE((*core)->WaitForEnd(absl::ZeroDuration()).has_value()) << "the task serves again";
  clock.Sleep(options.lease);
  EXPECT_TRUE((*core)->WaitForEnd(absl::ZeroDuration()).has_value());
  (*core)->End(absl::InternalError("another job"));
  EXPECT_EQ((*core)->WaitForEnd(absl::ZeroDuration()), absl::InternalError("another job"));
  (*core)->End(absl::OkStatus());
  EXPECT_EQ((*core)->WaitForEnd(absl::ZeroDuration()), absl::InternalError("another job"));
}

// Another run may have been begun and finished in the folder meanwhile.
TEST(SilentCoordinatorTest, ATaskThatHearsNothingDoesNotEndWithAnotherRun) {
  TestFolder folder;
  TestServer server(folder, {.tasks = 2});
  ASSERT_TRUE(server.Start().ok());
  std::thread training([&] { TrainWithClones(&server, 1); });
  EXPECT_TRUE(server.WaitAndClose().ok());
  training.join();
  SharedFakeClock clock;
  const ServerCoreOptions options = OptionsOfTask1(server.train_dir());
  auto core = ServerCore::Open(server.job(), options, &server.files(), &clock);
  ASSERT_TRUE(core.ok()) << core.status();
  clock.Sleep(options.lease);
  EXPECT_FALSE((*core)->WaitForEnd(absl::ZeroDuration()).has_value());
}

}  // namespace
}  // namespace pushpull
