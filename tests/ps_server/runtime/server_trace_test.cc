// What a server writes into its trace while clones train.
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "common/trace/trace_writer.h"
#include "tests/testkit/job/step_gate.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

using nlohmann::json;

constexpr uint64_t kTracedSteps = 20;
constexpr uint32_t kClones = 2;
constexpr uint64_t kSlowStep = 3;

double Begin(const json& span) { return span["ts"]; }
double End(const json& span) { return span["ts"].get<double>() + span["dur"].get<double>(); }

// Trains with two clones. Returns the trace's events. If `while_held` is given, the second clone is
// held inside step kSlowStep until that function returns.
std::vector<json> TraceOfARun(const TestServerOptions& common,
                              const std::function<void(TestServer*)>& while_held = nullptr) {
  MemoryFileSystem trace_files;
  auto writer = TraceWriter::Create(&trace_files, "/t", {});
  EXPECT_TRUE(writer.ok()) << writer.status();
  {
    TestFolder folder;
    TestServerOptions options = common;
    options.trace = writer->get();
    TestServer server(folder, options);
    EXPECT_EQ(server.Start(), absl::OkStatus());
    StepGate gate;
    TestCloneOptions clone;
    if (while_held != nullptr) {
      clone.gradient_hook = [hold = gate.HookAt(kSlowStep - 1)](uint64_t position, uint32_t replica,
                                                                GradientResult* result,
                                                                absl::Span<float> gradient) {
        if (replica == 1) hold(position, replica, result, gradient);
      };
    }
    std::vector<absl::Status> statuses;
    std::thread training([&] { statuses = TrainWithClones(&server, kClones, clone); });
    if (while_held != nullptr) {
      while_held(&server);
      gate.Open();
    }
    EXPECT_EQ(server.WaitAndClose(), absl::OkStatus());
    training.join();
    for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
  }
  EXPECT_EQ((*writer)->Close(), absl::OkStatus());
  std::vector<json> spans;
  for (const json& event : json::parse(*ReadWholeFile(trace_files, "/t"))) {
    if (event["ph"] == "X") spans.push_back(event);
  }
  return spans;
}

// Returns the spans called `name` of ps task `task` by step.
std::multimap<uint64_t, json> ByStep(const std::vector<json>& spans, const std::string& name,
                                     int task) {
  std::multimap<uint64_t, json> result;
  for (const json& span : spans) {
    if (span["name"] == name && span["pid"] == task + 1) result.emplace(span["args"]["step"], span);
  }
  return result;
}

TEST(ServerTrace, HasEveryPushApplyAndWaitOfASyncRun) {
  TestServerOptions options;
  options.tasks = 2;
  absl::Duration held;
  const std::vector<json> spans = TraceOfARun(options, [&held](TestServer* server) {
    EXPECT_TRUE(server->Await([server](const ps::StatusReply&) {
      return server->audit().AcceptedReplicas(kSlowStep).contains(0);
    }));
    const absl::Duration begin = server->clock().Now();
    absl::SleepFor(absl::Milliseconds(20));
    held = server->clock().Now() - begin;
  });
  for (int task = 0; task < 2; ++task) {
    const auto stages = ByStep(spans, "stage", task);
    const auto applies = ByStep(spans, "apply", task);
    for (uint64_t step = 1; step <= kTracedSteps; ++step) {
      EXPECT_EQ(stages.count(step), kClones) << "task " << task << ", step " << step;
      ASSERT_EQ(applies.count(step), 1) << "task " << task << ", step " << step;
      const json apply = applies.find(step)->second;
      for (auto [it, end] = stages.equal_range(step); it != end; ++it) {
        EXPECT_LE(End(it->second), Begin(apply) + 0.001) << it->second << apply;
        EXPECT_EQ(it->second["args"]["shard"], task);
        EXPECT_EQ(it->second["args"]["clone"], it->second["args"]["replica"]);
      }
    }
    EXPECT_EQ(ByStep(spans, "snapshot", task).count(kTracedSteps), 1) << "task " << task;
  }
  const auto waits = ByStep(spans, "wait", 0);
  EXPECT_EQ(waits.size(), kTracedSteps);
  ASSERT_EQ(waits.count(kSlowStep), 1);
  const json slow = waits.find(kSlowStep)->second;
  EXPECT_EQ(slow["args"]["for"], "clone 1");
  EXPECT_GE(slow["dur"], absl::ToDoubleMicroseconds(held) - 1.0);  // the trace rounds times
  EXPECT_EQ(ByStep(spans, "checkpoint", 0).count(kTracedSteps), 1);
  EXPECT_EQ(ByStep(spans, "wait", 1).size(), 0) << "only the coordinator in task 0 waits";
}

TEST(ServerTrace, HasAPullPerCloneAndVersion) {
  std::map<std::pair<uint64_t, uint64_t>, int> pulls;  // by row and version
  for (const json& span : TraceOfARun({})) {
    if (span["name"] == "pull") ++pulls[{span["tid"], span["args"]["version"]}];
  }
  for (uint64_t version = 1; version < kTracedSteps; ++version) {
    EXPECT_EQ((pulls[{2000, version}]), 1) << version;
    EXPECT_EQ((pulls[{2001, version}]), 1) << version;
  }
}

TEST(ServerTrace, NamesTheReplicasThatAStepLeavesOut) {
  TestServerOptions options;
  options.train_config = "step_deadline_secs: 0.05 min_contributors: 1";
  const auto await_step = [](TestServer* server) {
    EXPECT_TRUE(
        server->Await([](const ps::StatusReply& status) { return status.version() >= kSlowStep; }));
  };
  const auto waits = ByStep(TraceOfARun(options, await_step), "wait", 0);
  ASSERT_GE(waits.count(kSlowStep), 1);
  EXPECT_EQ(waits.find(kSlowStep)->second["args"]["for"], "replicas 1, which are left out");
}

TEST(ServerTrace, HasPushesAndAppliesOfAnAsyncRun) {
  TestServerOptions options;
  options.sync = false;
  const std::vector<json> spans = TraceOfARun(options);
  size_t applies = 0, stages = 0;
  for (const json& span : spans) {
    applies += span["name"] == "apply";
    stages += span["name"] == "stage";
    EXPECT_NE(span["name"], "wait") << "asynchronous mode has no waits for a step";
  }
  EXPECT_EQ(applies, kTracedSteps);
  EXPECT_GE(stages, kTracedSteps);
}

}  // namespace
}  // namespace pushpull
