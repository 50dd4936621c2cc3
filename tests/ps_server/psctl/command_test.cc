#include "ps_server/psctl/command.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "common/cli/exit_codes.h"
#include "tests/ps_server/transport/fake_ps_handler.h"
#include "tests/testkit/in_process_ps_client.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

absl::StatusOr<PsctlCommand> Parse(const std::vector<std::string>& arguments,
                                   const PsctlFlags& flags = {}) {
  return ParsePsctlCommand(arguments, flags);
}

void ExpectUsageError(const absl::StatusOr<PsctlCommand>& command, const std::string& words) {
  ASSERT_FALSE(command.ok());
  EXPECT_EQ(ExitCodeOf(command.status()), kExitUsage);
  EXPECT_THAT(std::string(command.status().message()), HasSubstr(words));
}

TEST(PsctlCommandTest, ReadsCommands) {
  EXPECT_EQ(Parse({"status"})->kind, PsctlCommand::Kind::kStatus);
  EXPECT_EQ(Parse({"checkpoint"})->kind, PsctlCommand::Kind::kCheckpoint);
  EXPECT_EQ(Parse({"drain"}, {.output = "json"})->output, PsctlCommand::Output::kJson);
  const auto evict = Parse({"evict", "2"}, {.reason = "slow", .timeout = absl::Seconds(3)});
  ASSERT_TRUE(evict.ok()) << evict.status();
  EXPECT_EQ(evict->worker_id, 2u);
  EXPECT_EQ(evict->reason, "slow");
  EXPECT_EQ(evict->timeout, absl::Seconds(3));
  EXPECT_EQ(Parse({"evict"}, {.worker_id = 4})->worker_id, 4u);
  EXPECT_TRUE(Parse({"evict", "4"}, {.worker_id = 4}).ok());
  EXPECT_EQ(Parse({"state", "list"})->kind, PsctlCommand::Kind::kStateList);
  const auto clean = Parse({"state", "clean", "a", "b"});
  ASSERT_TRUE(clean.ok()) << clean.status();
  EXPECT_EQ(clean->kind, PsctlCommand::Kind::kStateClean);
  EXPECT_EQ(clean->state_files, (std::vector<std::string>{"a", "b"}));
}

TEST(PsctlCommandTest, RefusesWhatItDoesNotUnderstand) {
  ExpectUsageError(Parse({}), "no command");
  ExpectUsageError(Parse({"stop"}), "unknown command \"stop\", expected one of: status");
  ExpectUsageError(Parse({"status", "now"}), "unexpected argument \"now\"");
  ExpectUsageError(Parse({"evict", "1", "2"}), "unexpected argument \"2\"");
  ExpectUsageError(Parse({"evict"}), "needs the worker id");
  ExpectUsageError(Parse({"state"}), "expected state list or state clean");
  ExpectUsageError(Parse({"state", "purge"}), "expected state list or state clean");
  ExpectUsageError(Parse({"state", "list", "x"}), "unexpected argument \"x\"");
  ExpectUsageError(Parse({"evict", "-1"}), "expected a worker id");
  ExpectUsageError(Parse({"evict", "host:1"}), "expected a worker id");
  ExpectUsageError(Parse({"evict", "1"}, {.worker_id = 2}), "disagree");
  ExpectUsageError(Parse({"drain"}, {.worker_id = 2}), "belong to evict");
  ExpectUsageError(Parse({"status"}, {.output = "xml"}), "--output=xml");
  ExpectUsageError(Parse({"status"}, {.timeout = absl::ZeroDuration()}), "--timeout=0");
}

// Refuses every call with the same status.
class RefusingHandler final : public FakePsHandler {
 public:
  explicit RefusingHandler(absl::Status status) : status_(std::move(status)) {}
  void GetStatus(const ps::StatusRequest&, Done<ps::StatusReply> done) override { done(status_); }
  void Evict(const ps::EvictRequest&, Done<ps::EvictReply> done) override { done(status_); }

 private:
  const absl::Status status_;
};

std::string Output(FakePsHandler* handler, const std::vector<std::string>& arguments,
                   const std::string& output) {
  const auto client = MakeInProcessPsClient(handler, "host:1");
  const auto text = RunPsctlCommand(*Parse(arguments, {.output = output}), client.get());
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

TEST(PsctlCommandTest, ShowsAnswers) {
  FakePsHandler handler;
  EXPECT_THAT(Output(&handler, {"status"}, "text"), HasSubstr("at host:1"));
  EXPECT_EQ(Output(&handler, {"checkpoint"}, "text"), "published the checkpoint of step 8\n");
  EXPECT_THAT(Output(&handler, {"drain"}, "text"), HasSubstr("step 9 is applied"));
  EXPECT_EQ(Output(&handler, {"evict", "2"}, "text"), "evicted clone 2; it had replica 2\n");
  EXPECT_EQ(Output(&handler, {"checkpoint"}, "json"), "{\"step\":\"8\"}\n");
  EXPECT_EQ(Output(&handler, {"drain"}, "json"), "{\"version\":\"9\"}\n");
  EXPECT_EQ(Output(&handler, {"evict", "2"}, "json"), "{\"replicas\":[2]}\n");
}

int ExitCodeFor(const absl::Status& refusal) {
  RefusingHandler handler(refusal);
  const auto client = MakeInProcessPsClient(&handler, "host:1");
  return ExitCodeOf(RunPsctlCommand(*Parse({"evict", "1"}), client.get()).status());
}

TEST(PsctlCommandTest, MapsErrorsToExitCodes) {
  EXPECT_EQ(ExitCodeFor(absl::NotFoundError("no clone 1")), kExitMissingInput);
  EXPECT_EQ(ExitCodeFor(absl::UnavailableError("refused")), kExitPeerLost);
  EXPECT_EQ(ExitCodeFor(absl::DeadlineExceededError("silent")), kExitPeerLost);
  EXPECT_EQ(ExitCodeFor(absl::FailedPreconditionError("not task 0")), kExitBadInput);
  ps::ErrorDetail stopped;
  stopped.set_kind(ps::ErrorDetail::STOPPED);
  EXPECT_EQ(ExitCodeFor(MakeError(stopped, "NaN")), kExitInternal);
}

TEST(PsctlCommandTest, JsonHasEveryFieldAndTheRunIdInHex) {
  class Handler final : public FakePsHandler {
    void GetStatus(const ps::StatusRequest&, Done<ps::StatusReply> done) override {
      ps::StatusReply reply;
      reply.set_run_id(std::string("\x00\xff\x10", 3) + std::string(13, 'a'));
      reply.set_version(1200);
      reply.set_seconds_since_checkpoint(-1);
      reply.add_late_workers(2);
      ps::CloneStatus& clone = *reply.add_clones();
      clone.set_worker_id(2);
      clone.set_peer_name("h\xff");  // not valid UTF-8
      reply.mutable_staleness()->add_counts(3);
      done(reply);
    }
  } handler;
  const nlohmann::json json = nlohmann::json::parse(Output(&handler, {"status"}, "json"));
  EXPECT_EQ(json["run_id"], "00ff1061616161616161616161616161");
  EXPECT_EQ(json["version"], "1200");
  EXPECT_EQ(json["seconds_since_checkpoint"], -1.0);
  EXPECT_EQ(json["late_workers"][0], 2);
  EXPECT_EQ(json["clones"][0]["worker_id"], 2);
  EXPECT_EQ(json["clones"][0]["evicted"], false);
  EXPECT_EQ(json["staleness"]["counts"][0], "3");
  for (const char* name : {"waiting_for", "training_done", "dropped_contributions", "stopped",
                           "checkpoints", "last_checkpoint_seconds"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
}

}  // namespace
}  // namespace pushpull
