// Tests a ps task that is left alone while another task 0 comes to the address of its own one.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/checkpoint/manifest.h"
#include "common/checkpoint/train_dir.h"
#include "common/wire/error_detail.h"
#include "ps_server/runtime/job_spec.h"
#include "ps_server/runtime/not_ready_handler.h"
#include "ps_server/runtime/server.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/one_shard_checkpoint.h"
#include "tests/testkit/raw_call.h"
#include "tests/testkit/warning_sink.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

class LeftTaskTest : public ::testing::Test {
 protected:
  std::string Address(int task) const { return absl::StrCat("unix:", folder_.path(), "/ps", task); }
  // task: -1 for a server with all tasks, which listens at the address of task 0.
  std::unique_ptr<Server> Start(int task, int tasks, const std::string& train_dir = "train",
                                const std::string& state_dir = "state") {
    ServerOptions options;
    options.config = MakeTinyConfig("num_steps: 1000000");
    options.train_dir = absl::StrCat(folder_.path(), "/", train_dir);
    options.state_dir = absl::StrCat(folder_.path(), "/", state_dir);
    options.tasks = tasks;
    options.task_index = task;
    for (int i = 0; i < tasks; ++i) options.cluster.push_back(Address(i));
    options.listen = Address(task < 0 ? 0 : task);
    auto server = Server::Create(std::move(options), &files_, &clock_);
    EXPECT_TRUE(server.ok()) << server.status();
    return server.ok() ? *std::move(server) : nullptr;
  }
  bool AwaitServing(int task) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (Health(Address(task), "ps.ParameterServer") != 1) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return true;
  }

  TestFolder folder_;
  PosixFileSystem files_;
  SteadyClock clock_;
};

TEST_F(LeftTaskTest, EndsWhenTask0ReturnsWithMoreTasks) {
  auto task_0 = Start(0, 2);
  auto left = Start(1, 2);
  ASSERT_TRUE(task_0 != nullptr && left != nullptr);
  ASSERT_TRUE(AwaitServing(1));
  task_0.reset();  // killed
  task_0 = Start(0, 3);
  const auto task_2 = Start(2, 3);
  ASSERT_TRUE(task_0 != nullptr && task_2 != nullptr);
  const std::optional<absl::Status> end = left->WaitForEnd(kPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(GetErrorDetail(*end).kind(), ps::ErrorDetail::JOB_CHANGED) << *end;
  EXPECT_THAT(std::string(end->message()), HasSubstr("has 3 tasks, this task 1 was told 2"));
  EXPECT_EQ(ReadEpoch(files_, folder_.path() + "/train").value_or(0), 2u)
      << "no epoch follows before another task 1 comes";
  left->Stop(*end);
  left = Start(1, 3);
  EXPECT_TRUE(AwaitServing(0));
}

TEST_F(LeftTaskTest, DrainsNoOtherRunThatHasTheAddressOfTask0) {
  auto task_0 = Start(0, 2);
  const auto left = Start(1, 2);
  ASSERT_TRUE(task_0 != nullptr && left != nullptr);
  ASSERT_TRUE(AwaitServing(1));
  task_0.reset();  // killed
  const auto other = Start(-1, 1, "other");
  ASSERT_NE(other, nullptr);
  ASSERT_TRUE(AwaitServing(0));
  const WarningSink sink;
  left->Drain();
  const std::optional<absl::Status> end = left->WaitForEnd(kPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(absl::IsCancelled(*end)) << *end;
  EXPECT_EQ(sink.Count("another run has the address of ps task 0"), 1);
  EXPECT_FALSE(other->end_wanted());
  EXPECT_FALSE(other->WaitForEnd(absl::ZeroDuration()).has_value());
}

// Task 0 opens its checkpoint for longer than a lease, perhaps to go back to it.
TEST_F(LeftTaskTest, WaitsForATask0ThatSaysThatItStartsInAFinishedRun) {
  ServerOptions options;
  options.config = MakeTinyConfig("num_steps: 20");
  options.train_dir = folder_.path() + "/train";
  const JobSpec job = JobSpec::Create(options.config, true, 2);
  CheckpointManifest manifest;
  manifest.run_id = std::string(32, 'a');
  manifest.epoch = 1;
  manifest.step = 20;
  manifest.training_done = true;
  ASSERT_TRUE(files_.MakeDirectory(options.train_dir).ok());
  ASSERT_TRUE(PublishOneShard(files_, options.train_dir, job.layout, manifest,
                              std::vector<float>(job.layout.total_elements(), 1.0f))
                  .ok());
  ASSERT_TRUE(WriteFileAtomically(files_, options.train_dir + "/run_id", manifest.run_id).ok());
  NotReadyHandler starting("task 0 opens its checkpoint");
  const auto task_0 = StartGrpcPsServer(Address(0), &starting, {});
  ASSERT_TRUE(task_0.ok()) << task_0.status();
  options.tasks = 2;
  options.task_index = 1;
  options.cluster = {Address(0), Address(1)};
  options.listen = Address(1);
  options.lease = absl::Milliseconds(200);
  const absl::Time stop = absl::Now() + 10 * options.lease;
  options.stop_requested = [stop] { return absl::Now() > stop; };
  const auto task_1 = Server::Create(std::move(options), &files_, &clock_);
  EXPECT_TRUE(absl::IsCancelled(task_1.status())) << task_1.status();
}

// The node of a task may be cut off, so that a scheduler starts the task elsewhere.
TEST_F(LeftTaskTest, DrainsNoJobInWhichAnotherProcessHasItsTask) {
  const auto task_0 = Start(0, 2);
  const auto left = Start(1, 2);
  ASSERT_TRUE(task_0 != nullptr && left != nullptr);
  ASSERT_TRUE(AwaitServing(1));
  ASSERT_TRUE(files_.RemoveFile(folder_.path() + "/ps1").ok());  // its socket
  const auto task_1 = Start(1, 2, "train", "state of another machine");
  ASSERT_NE(task_1, nullptr);
  const WarningSink sink;
  left->Drain();
  const std::optional<absl::Status> end = left->WaitForEnd(kPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(absl::IsCancelled(*end)) << *end;
  EXPECT_EQ(sink.Count("another process has this ps task now"), 1);
  EXPECT_EQ(sink.Count("mapped state only"), 0);
  EXPECT_FALSE(task_0->end_wanted());
  EXPECT_FALSE(task_0->WaitForEnd(absl::ZeroDuration()).has_value());
}

}  // namespace
}  // namespace pushpull
