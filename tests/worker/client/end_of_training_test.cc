// How a clone waits after the last step until the server confirms that the result is saved.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"

#include "tests/ps_server/transport/fake_ps_handler.h"
#include "tests/testkit/in_process_ps_client.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/job/toy_gradient_source.h"
#include "worker/client/clone_trainer.h"

namespace pushpull {
namespace {

// A server that has applied the only step of its job.
class LastStepHandler final : public FakePsHandler {
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
    reply.set_version(1);
    reply.set_num_steps(1);
    reply.set_num_replicas(1);
    reply.set_lease_milliseconds(60000);
    done(reply);
  }
  void Heartbeat(const ps::HeartbeatRequest& request, Done<ps::HeartbeatReply> done) override {
    if (lost) return FakePsHandler::Heartbeat(request, std::move(done));  // never answers
    ps::HeartbeatReply reply;
    reply.set_epoch(1);
    reply.set_version(1);
    reply.set_waiting_for(waits_for);
    reply.set_training_done(saved.load());
    done(reply);
  }

  bool lost = false;
  std::string waits_for;
  std::atomic<bool> saved{false};
};

class EndOfTrainingTest : public ::testing::Test {
 protected:
  absl::Status Run() {
    PsSession::Options options;
    options.peer_deadline = absl::Milliseconds(200);
    options.rpc_timeout = absl::Milliseconds(50);
    PsSession session(
        options,
        [this](const std::string& address) { return MakeInProcessPsClient(&handler_, address); },
        &clock_, nullptr);
    EXPECT_TRUE(session.Connect({"task 0"}).ok());
    const VariableLayout layout = MakeToyLayout();
    ToyGradientSource source(&layout, 1);
    CloneTrainer trainer(&session, &source, &layout, &clock_, [this](const CloneReport& report) {
      waits_.push_back(report.waiting_for);
      handler_.saved.store(true);
    });
    const TrainerDeadline deadline(&trainer);
    return trainer.Run();
  }

  SteadyClock clock_;
  LastStepHandler handler_;
  std::vector<std::string> waits_;
};

TEST_F(EndOfTrainingTest, AServerThatIsLostBeforeItConfirmsTheEndIsAnError) {
  handler_.lost = true;
  const absl::Status status = Run();
  EXPECT_TRUE(IsPeerLost(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "ps task 0 at task 0 did not answer for"))
      << status;
}

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
