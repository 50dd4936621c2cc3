#include "ps_server/psctl/command.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "common/base/status_macros.h"
#include "common/cli/exit_codes.h"
#include "common/wire/error_detail.h"
#include "tests/testkit/fake_clock.h"
#include "tests/testkit/fake_ps_handler.h"
#include "tests/testkit/in_process_ps_client.h"
#include "tests/testkit/refusing_ps_client.h"

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
  ExpectUsageError(Parse({"state"}), "scale, state list, state clean");
  ExpectUsageError(Parse({"state", "purge"}), "unknown command \"state purge\", expected one of");
  ExpectUsageError(Parse({"state", "list", "x"}), "unexpected argument \"x\"");
  ExpectUsageError(Parse({"evict", "-1"}), "expected a worker id");
  ExpectUsageError(Parse({"evict", "host:1"}), "expected a worker id");
  ExpectUsageError(Parse({"evict", "1"}, {.worker_id = 2}), "disagree");
  ExpectUsageError(Parse({"evict", "1"}, {.reason = "zu \xfc"}),
                   "--reason=zu \\xfc, expected UTF-8");
  ExpectUsageError(Parse({"drain"}, {.worker_id = 2}), "belong to evict");
  ExpectUsageError(Parse({"scale"}), "expected a number of replicas");
  ExpectUsageError(Parse({"scale", "0"}), "scale 0: expected a number");
  ExpectUsageError(Parse({"scale", "-3"}), "expected a number");
  ExpectUsageError(Parse({"scale", "3", "4"}), "unexpected argument \"4\"");
  ExpectUsageError(Parse({"drain"}, {.wait = true}), "--wait belongs to scale");
  ExpectUsageError(Parse({"status"}, {.state_dir = "/nope"}), "--state_dir belongs to state");
  ExpectUsageError(Parse({"evict", "1"}, {.state_dir = "/nope"}), "not to evict");
  EXPECT_EQ(Parse({"state", "list"}, {.state_dir = "/s"})->state_dir, "/s");
  EXPECT_EQ(Parse({"state", "clean"}, {.state_dir = "/s"})->state_dir, "/s");
  EXPECT_EQ(Parse({"scale", "3"})->num_replicas, 3u);
  EXPECT_TRUE(Parse({"scale", "3"}, {.wait = true})->wait);
  ExpectUsageError(Parse({"status"}, {.output = "xml"}), "--output=xml");
  ExpectUsageError(Parse({"status"}, {.timeout = absl::ZeroDuration()}), "--timeout=0");
}

TEST(PsctlCommandTest, ChecksTheAddressAsAWorkerDoes) {
  EXPECT_EQ(Parse({"status"})->address, "127.0.0.1:2222");
  EXPECT_EQ(Parse({"status"}, {.ps = {"a:1", "b:2"}})->address, "a:1");
  EXPECT_EQ(Parse({"drain"}, {.ps = {"unix:/run/ps"}})->address, "unix:/run/ps");
  for (const char* address : {"127.0.0.1:94758", "127.0.0.1", "127.0.0.1:0", ":2222", ""}) {
    SCOPED_TRACE(address);
    const auto command = Parse({"status"}, {.ps = {address}});
    ExpectUsageError(command, absl::StrCat("--ps: address \"", address, "\" of ps task 0"));
    ExpectUsageError(command, "expected host:port with a port from 1 to 65535");
    EXPECT_TRUE(Parse({"state", "list"}, {.ps = {address}}).ok()) << "no server is contacted";
  }
  ExpectUsageError(Parse({"status"}, {.ps = {}}), "--ps names no address");
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
  FakeClock clock;
  const auto text = RunPsctlCommand(*Parse(arguments, {.output = output}), client.get(), &clock);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

TEST(PsctlCommandTest, ShowsAnswers) {
  FakePsHandler handler;
  EXPECT_THAT(Output(&handler, {"status"}, "text"), HasSubstr("at host:1"));
  EXPECT_EQ(Output(&handler, {"checkpoint"}, "text"), "published the checkpoint of step 8\n");
  EXPECT_EQ(
      Output(&handler, {"drain"}, "text"),
      "the server ends: step 9 is applied. It finishes a synchronous step that has commits if "
      "that takes no more than 5 s, and gives up any other. Then it publishes a checkpoint, unless "
      "it has not served yet, and exits with 143\n");
  EXPECT_EQ(Output(&handler, {"evict", "2"}, "text"), "evicted clone 2; it had replica 2\n");
  EXPECT_EQ(Output(&handler, {"checkpoint"}, "json"), "{\"step\":\"8\"}\n");
  EXPECT_EQ(Output(&handler, {"drain"}, "json"), "{\"version\":\"9\"}\n");
  EXPECT_EQ(Output(&handler, {"evict", "2"}, "json"), "{\"replicas\":[2]}\n");
}

// Has scaled the job to more replicas than there are clones, and is at a step before that.
class ScalingHandler final : public FakePsHandler {
 public:
  void Scale(const ps::ScaleRequest&, Done<ps::ScaleReply> done) override {
    ps::ScaleReply reply;
    reply.set_from_step(7);
    reply.set_previous_num_replicas(1);
    reply.set_live_clones(live_clones_);
    done(reply);
  }
  void GetStatus(const ps::StatusRequest&, Done<ps::StatusReply> done) override {
    ps::StatusReply reply;
    reply.set_version(std::min(++version_, last_step_));
    reply.set_training_done(version_ >= last_step_);
    reply.set_num_replicas(2);
    reply.set_waiting_for("clone 3 of 4 (lost)");
    done(reply);
  }
  uint64_t version() const { return version_; }
  void EndAt(uint64_t last_step) { last_step_ = last_step; }
  void HaveClones(uint32_t live_clones) { live_clones_ = live_clones; }

 private:
  uint32_t live_clones_ = 2;
  uint64_t version_ = 4;
  uint64_t last_step_ = 1000;
};

TEST(PsctlCommandTest, ScaleSaysWhatHolds) {
  ScalingHandler handler;
  const auto client = MakeInProcessPsClient(&handler, "host:1");
  FakeClock clock;
  const auto run = [&](const std::string& number, const PsctlFlags& flags) {
    return RunPsctlCommand(*Parse({"scale", number}, flags), client.get(), &clock);
  };
  EXPECT_EQ(*run("4", {}),
            "4 replicas from step 7 on, 1 until then; 2 clones are there: they compute several "
            "replicas each, at first perhaps after a lease, until more come\n");
  EXPECT_THAT(*run("1", {}), HasSubstr("; 2 clones are there: those without a replica are spares"));
  EXPECT_THAT(*run("2", {}), HasSubstr("; 2 clones are there\n"));
  EXPECT_EQ(handler.version(), 4u) << "nobody waits without --wait";
  EXPECT_TRUE(run("2", {.wait = true}).ok());
  EXPECT_EQ(handler.version(), 7u);
  handler.HaveClones(0);
  EXPECT_THAT(*run("2", {}),
              HasSubstr("; 0 clones are there: training goes on once a worker is there\n"));
}

TEST(PsctlCommandTest, ScaleConfirmsOnlyWhatHasHappened) {
  ScalingHandler handler;
  const auto client = MakeInProcessPsClient(&handler, "host:1");
  FakeClock clock;
  const auto run = [&](const std::string& number) {
    return RunPsctlCommand(*Parse({"scale", number}, {.wait = true}), client.get(), &clock);
  };
  const auto overruled = run("4");
  EXPECT_TRUE(absl::IsAborted(overruled.status())) << overruled.status();
  EXPECT_THAT(std::string(overruled.status().message()), HasSubstr("has 2 replicas instead of 4"));
  handler.EndAt(6);
  const auto late = run("2");
  EXPECT_TRUE(absl::IsFailedPrecondition(late.status())) << late.status();
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("training ended with step 6"));
}

// Answers each call after a time of its own, if the caller waits that long. The job never reaches
// the step.
class SlowPsClient final : public RefusingPsClient {
 public:
  SlowPsClient(absl::Duration scale, absl::Duration status, FakeClock* clock)
      : scale_(scale), status_(status), clock_(clock) {}

  absl::StatusOr<ps::ScaleReply> Scale(const ps::ScaleRequest&, absl::Duration timeout) override {
    PP_RETURN_IF_ERROR(Answer(scale_, timeout));
    ps::ScaleReply reply;
    reply.set_from_step(7);
    return reply;
  }
  absl::StatusOr<ps::StatusReply> GetStatus(const ps::StatusRequest&,
                                            absl::Duration timeout) override {
    PP_RETURN_IF_ERROR(Answer(status_, timeout));
    ps::StatusReply reply;
    reply.set_version(6);
    reply.set_waiting_for("clone 3 of 4 (lost)");
    return reply;
  }

 private:
  absl::Status Answer(absl::Duration after, absl::Duration timeout) {
    EXPECT_GE(timeout, absl::ZeroDuration());
    clock_->Advance(std::min(after, timeout));
    return after <= timeout ? absl::OkStatus() : absl::DeadlineExceededError("no answer in time");
  }

  const absl::Duration scale_;
  const absl::Duration status_;
  FakeClock* const clock_;
};

TEST(PsctlCommandTest, ScaleWaitsForAtMostTheTimeout) {
  struct Case {
    absl::Duration scale;
    absl::Duration status;
    std::string words;  // of the error
  };
  for (const Case& a_case : {Case{absl::ZeroDuration(), absl::ZeroDuration(), "clone 3 of 4"},
                             Case{absl::Seconds(6), absl::Seconds(3), "clone 3 of 4"},
                             Case{absl::Seconds(6), absl::Hours(1), "no answer in time"},
                             Case{absl::Seconds(10), absl::Hours(1), "no answer in time"},
                             Case{absl::Hours(1), absl::Hours(1), "no answer in time"}}) {
    SCOPED_TRACE(absl::StrCat(absl::FormatDuration(a_case.scale), " and ",
                              absl::FormatDuration(a_case.status)));
    FakeClock clock;
    SlowPsClient client(a_case.scale, a_case.status, &clock);
    const absl::Duration start = clock.Now();
    const absl::Duration timeout = absl::Seconds(10);
    const auto late = RunPsctlCommand(*Parse({"scale", "4"}, {.wait = true, .timeout = timeout}),
                                      &client, &clock);
    EXPECT_TRUE(absl::IsDeadlineExceeded(late.status())) << late.status();
    EXPECT_THAT(std::string(late.status().message()), HasSubstr(a_case.words));
    EXPECT_LE(clock.Now() - start, timeout);
    EXPECT_GE(clock.Now() - start, absl::Seconds(9)) << "it gives up too early";
  }
}

int ExitCodeFor(const absl::Status& refusal) {
  RefusingHandler handler(refusal);
  const auto client = MakeInProcessPsClient(&handler, "host:1");
  FakeClock clock;
  return ExitCodeOf(RunPsctlCommand(*Parse({"evict", "1"}), client.get(), &clock).status());
}

TEST(PsctlCommandTest, SaysWhatToDoIfNobodyAnswers) {
  FakeClock clock;
  const auto message = [&clock](const absl::Status& refusal) {
    RefusingHandler handler(refusal);
    const auto client = MakeInProcessPsClient(&handler, "host:1");
    return std::string(
        RunPsctlCommand(*Parse({"status"}), client.get(), &clock).status().message());
  };
  const std::string advice = "check that a ps_server listens there, or give its address as --ps";
  EXPECT_THAT(message(absl::UnavailableError("refused")), HasSubstr(advice));
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::NOT_READY);
  EXPECT_THAT(message(MakeError(detail, "it waits")), testing::Not(HasSubstr(advice)));
  EXPECT_THAT(message(absl::DeadlineExceededError("Deadline Exceeded")),
              HasSubstr("Deadline Exceeded (--timeout=10s); with a longer --timeout"));
  RefusingHandler handler(absl::DeadlineExceededError("Deadline Exceeded"));
  const auto client = MakeInProcessPsClient(&handler, "host:1");
  EXPECT_THAT(
      std::string(RunPsctlCommand(*Parse({"evict", "1"}), client.get(), &clock).status().message()),
      HasSubstr("the server may still do it"));
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
      reply.add_late_clones(2);
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
  EXPECT_EQ(json["late_clones"][0], 2);
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
