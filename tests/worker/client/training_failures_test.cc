// Failures that stop training, and what every clone is told about them.
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

#include "common/wire/error_detail.h"
#include "tests/testkit/fake_clock.h"
#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Spoil = std::function<void(GradientResult*, absl::Span<float>)>;

ToyGradientSource::Hook SpoilAt(uint64_t first, uint64_t last, uint32_t replica, Spoil spoil) {
  return [=](uint64_t position, uint32_t at_replica, GradientResult* result,
             absl::Span<float> gradient) {
    if (position >= first && position <= last && at_replica == replica) spoil(result, gradient);
  };
}

void SpoilLoss(GradientResult* result, absl::Span<float>) { result->loss = kNan; }

struct StopCase {
  const char* name;
  Spoil spoil;
  std::vector<std::string> words;
};

class NonFiniteTest : public ::testing::TestWithParam<int> {};

TEST_P(NonFiniteTest, StopsAndNamesStepCloneAndVariable) {
  const VariableLayout layout = MakeToyLayout();
  const int64_t dense = layout.offset(*layout.Find("toy/dense/weights"));
  const std::vector<StopCase> cases = {
      {"loss", SpoilLoss, {"step 4", "clone 1", "non-finite loss"}},
      {"gradient",
       [dense](GradientResult*, absl::Span<float> gradient) { gradient[dense + 71] = kNan; },
       {"step 4", "clone 1", "finite loss", "gradient: toy/dense/weights"}},
  };
  for (const StopCase& c : cases) {
    TestFolder folder;
    TestServerOptions server_options;
    server_options.tasks = GetParam();
    TestServer server(folder, server_options);
    ASSERT_TRUE(server.Start().ok());
    TestCloneOptions clones;
    clones.gradient_hook = SpoilAt(3, 3, 1, c.spoil);
    std::vector<absl::Status> statuses;
    std::thread training([&] { statuses = TrainWithClones(&server, 3, clones); });
    const absl::Status end = server.WaitAndClose();
    training.join();
    EXPECT_FALSE(end.ok());
    statuses.push_back(end);
    for (size_t k = 0; k < statuses.size(); ++k) {
      for (const std::string& word : c.words) {
        EXPECT_TRUE(absl::StrContains(statuses[k].message(), word))
            << c.name << ", clone " << k << " (3 is the server): " << statuses[k] << "\nlacks "
            << word;
      }
      if (k < 3) {
        EXPECT_EQ(GetErrorDetail(statuses[k]).kind(), ps::ErrorDetail::STOPPED) << statuses[k];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tasks, NonFiniteTest, ::testing::Values(1, 2));

TEST(TrainingFailuresTest, SkipsBadContributions) {
  for (const bool sync : {true, false}) {
    TestFolder folder;
    TestServerOptions server_options;
    server_options.train_config = "non_finite_policy: SKIP";
    server_options.sync = sync;
    TestServer server(folder, server_options);
    ASSERT_TRUE(server.Start().ok());
    TestCloneOptions clones;
    clones.gradient_hook = SpoilAt(3, 4, 1, SpoilLoss);
    std::vector<absl::Status> statuses;
    std::thread training([&] { statuses = TrainWithClones(&server, 2, clones); });
    const absl::Status end = server.WaitForEnd();
    EXPECT_TRUE(end.ok()) << end;
    if (sync) {
      EXPECT_EQ(server.core().Status().void_contributions(), 2);
    }
    EXPECT_TRUE(server.WaitAndClose().ok());
    training.join();
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
    for (const float value : server.Checkpointed(20)) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(TrainingFailuresTest, TenVoidStepsInARowStopTraining) {
  for (const bool sync : {true, false}) {
    TestFolder folder;
    TestServerOptions server_options;
    server_options.train_config = "non_finite_policy: SKIP";
    server_options.sync = sync;
    TestServer server(folder, server_options);
    ASSERT_TRUE(server.Start().ok());
    TestCloneOptions clones;
    clones.gradient_hook = SpoilAt(3, 1000, 0, SpoilLoss);
    std::vector<absl::Status> statuses;
    std::thread training([&] { statuses = TrainWithClones(&server, 1, clones); });
    const absl::Status end = server.WaitForEnd();
    EXPECT_FALSE(end.ok());
    EXPECT_EQ(server.core().Status().void_contributions(), 10);
    EXPECT_FALSE(server.WaitAndClose().ok());
    training.join();
    EXPECT_EQ(GetErrorDetail(statuses[0]).kind(), ps::ErrorDetail::STOPPED) << statuses[0];
  }
}

TEST(TrainingFailuresTest, RefusesAnotherModelAndNamesTheDifference) {
  TestFolder folder;
  TestServer server(folder, {});
  ASSERT_TRUE(server.Start().ok());
  const VariableLayout larger = MakeToyLayout(100);
  TestCloneOptions options;
  options.layout = &larger;
  TestClone clone(&server, options);
  const absl::Status status = clone.Join();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(GetErrorDetail(status).variable(), "toy/large/weights");
  EXPECT_TRUE(absl::StrContains(status.message(), "toy/large/weights")) << status;
}

TEST(TrainingFailuresTest, NamesASilentPeerAtItsDeadline) {
  // Also covers a second task that is silent while the first one answers, and a second task of
  // which only pulls are lost, which no other call reveals.
  struct Loss {
    int task;
    absl::string_view method;  // empty: all methods
  };
  for (const Loss loss : {Loss{0, ""}, Loss{1, ""}, Loss{1, "Pull"}}) {
    TestFolder folder;
    TestServerOptions server_options;
    server_options.tasks = 2;
    server_options.train_config = "num_steps: 1000000";
    TestServer server(folder, server_options);
    ASSERT_TRUE(server.Start().ok());
    std::atomic<bool> lost{false};
    std::atomic<int> calls_while_lost{0};
    PsSession* running = nullptr;
    PsSession::Options options;
    options.peer_deadline = absl::Milliseconds(400);
    PsSession session(
        options,
        [&](const std::string& address) {
          const int task = address == "task 0" ? 0 : 1;
          return server.MakeClient(task, [&, task, loss](const MessageInfo& message) {
            CallFault fault;
            // Ends a session that does not notice the loss.
            if (lost.load() && ++calls_while_lost == 200) running->Stop();
            const bool meant = loss.method.empty() || message.method == loss.method;
            fault.drop_request = task == loss.task && meant && lost.load();
            return fault;
          });
        },
        &server.clock(), nullptr);
    running = &session;
    ASSERT_TRUE(session.Connect({"task 0"}).ok());
    const VariableLayout& layout = server.job().layout;
    ToyGradientSource source(
        &layout, 1, [&lost](uint64_t position, uint32_t, GradientResult*, absl::Span<float>) {
          if (position == 3) lost.store(true);
        });
    CloneTrainer trainer(&session, &source, &layout, &server.clock(), [](const CloneReport&) {});
    const TrainerDeadline deadline(&trainer);
    const absl::Status status = trainer.Run();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_TRUE(IsPeerLost(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), loss.task == 0 ? "task 0" : "task 1"))
        << status;
  }
}

TEST(TrainingFailuresTest, NamesAMissingServerAtTheDeadline) {
  TestFolder folder;
  TestServer server(folder, {});  // never started
  PsSession::Options options;
  options.peer_deadline = absl::Seconds(10);
  FakeClock clock;
  const absl::Duration start = clock.Now();
  PsSession* running = nullptr;
  int calls = 0;
  std::vector<std::pair<absl::Duration, std::string>> waits;
  PsSession session(
      options, server.factory([&](const MessageInfo&) {
        if (++calls == 1000) running->Stop();  // ends a session that ignores its deadline
        return CallFault();
      }),
      &clock, [&](const std::string& peer) { waits.emplace_back(clock.Now() - start, peer); });
  running = &session;
  const absl::Status status = session.Connect({"task 0"});
  EXPECT_TRUE(IsPeerLost(status)) << status;
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "ps task 0 at task 0 did not answer for 10 s"))
      << status;
  EXPECT_EQ(clock.Now() - start, absl::Seconds(10));
  ASSERT_FALSE(waits.empty());
  EXPECT_EQ(waits.front().first, absl::ZeroDuration())
      << "the session must report at once for whom it waits";
  EXPECT_GE(waits.size(), 5u) << "the session must keep reporting it";
  for (const auto& [when, peer] : waits) EXPECT_EQ(peer, "ps task 0 at task 0");
}

TEST(TrainingFailuresTest, StopEndsAWaitingClone) {
  TestFolder folder;
  TestServer server(folder, {});
  ASSERT_TRUE(server.Start().ok());
  TestCloneOptions options;
  options.num_replicas = 2;  // the other clone never comes
  TestClone clone(&server, options);
  ASSERT_TRUE(server.Await(
      [](const auto& status) { return absl::StrContains(status.waiting_for(), "clone 1 of 2"); }));
  clone.Stop();
  EXPECT_TRUE(absl::IsCancelled(clone.Join()));
}

}  // namespace
}  // namespace pushpull
