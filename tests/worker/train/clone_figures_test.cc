// What clones report about themselves in heartbeats, and what their traces contain.
#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "common/trace/trace_parts.h"
#include "tests/testkit/fake_clock.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/memory_file_system.h"
#include "worker/client/local_steps_source.h"
#include "worker/train/gpu_probe.h"

namespace pushpull {
namespace {

using nlohmann::json;

constexpr uint64_t kSteps = 20;

// Returns the figures or the error that the test has set.
class FakeMonitor final : public GpuMonitor {
 public:
  explicit FakeMonitor(const absl::StatusOr<GpuFigures>* figures) : figures_(figures) {}
  absl::StatusOr<GpuFigures> Read(absl::string_view gpu) override {
    EXPECT_EQ(gpu, "GPU-aa01");
    return *figures_;
  }

 private:
  const absl::StatusOr<GpuFigures>* const figures_;
};

struct Job {
  explicit Job(TestServerOptions options = {}) : server(folder, std::move(options)) {}
  // Trains to the end and returns the status from before the server closes.
  ps::StatusReply Train(uint32_t clones, const TestCloneOptions& common = {}) {
    EXPECT_EQ(server.Start(), absl::OkStatus());
    for (const absl::Status& status : TrainWithClones(&server, clones, common)) {
      EXPECT_EQ(status, absl::OkStatus());
    }
    return server.core().Status();
  }
  TestFolder folder;
  TestServer server;
};

double Sum(const ps::PhaseSeconds& seconds) {
  return seconds.input() + seconds.pull() + seconds.compute() + seconds.push() + seconds.wait();
}

TEST(CloneFigures, HeartbeatsReportTheTimeOfEachPhase) {
  for (const bool sync : {true, false}) {
    TestServerOptions options;
    options.sync = sync;
    TestCloneOptions clone;
    clone.gradient_hook = [](uint64_t, uint32_t, GradientResult*, absl::Span<float>) {
      absl::SleepFor(absl::Milliseconds(5));
    };
    Job job(options);
    const absl::Duration start = job.server.clock().Now();
    const ps::StatusReply status = job.Train(2, clone);
    const double wall = absl::ToDoubleSeconds(job.server.clock().Now() - start);
    uint64_t contributions = 0;
    ASSERT_EQ(status.clones_size(), 2);
    for (const ps::CloneStatus& told : status.clones()) {
      const ps::CloneProgress& progress = told.progress();
      const ps::PhaseSeconds& seconds = progress.phase_seconds();
      // The last heartbeat comes before the end of the job, which waits for the last checkpoint.
      EXPECT_LE(Sum(seconds), wall);
      EXPECT_GE(seconds.compute(), 0.005 * progress.contributions());
      EXPECT_GT(seconds.pull(), 0.0);
      EXPECT_GT(seconds.push(), 0.0);
      EXPECT_GE(progress.images(), 15 * progress.contributions()) << "31 images over two replicas";
      EXPECT_FALSE(progress.has_gpu()) << "a clone on the CPU has no GPU";
      contributions += progress.contributions();
    }
    if (sync) {
      EXPECT_EQ(contributions, 2 * kSteps);
    } else {
      EXPECT_GE(contributions, kSteps);
    }
  }
}

TEST(CloneFigures, HeartbeatsReportTheGpu) {
  GpuFigures figures;
  figures.utilization_percent = 42;
  figures.memory_used_bytes = 3;
  figures.memory_total_bytes = 9;
  const absl::StatusOr<GpuFigures> read = figures;
  SteadyClock clock;
  GpuProbe probe(std::make_unique<FakeMonitor>(&read), "GPU-aa01", "GPU 0 (a GPU)", &clock);
  TestCloneOptions clone;
  clone.instruments.gpu = [&probe] { return probe.Read(); };
  Job job;
  const ps::StatusReply status = job.Train(1, clone);
  const ps::GpuFigures& told = status.clones(0).progress().gpu();
  EXPECT_EQ(told.name(), "GPU 0 (a GPU)");
  EXPECT_DOUBLE_EQ(told.utilization(), 0.42);
  EXPECT_EQ(told.memory_used_bytes(), 3);
  EXPECT_EQ(told.memory_total_bytes(), 9);
}

TEST(CloneFigures, ReadsAGpuOncePerSecond) {
  absl::StatusOr<GpuFigures> read = GpuFigures();
  FakeClock clock;
  GpuProbe probe(std::make_unique<FakeMonitor>(&read), "GPU-aa01", "GPU 0", &clock);
  ASSERT_TRUE(probe.Read().has_value());
  EXPECT_EQ(probe.Read()->utilization(), 0.0) << "a figure that the GPU does not report is 0";
  read->utilization_percent = 50;
  EXPECT_EQ(probe.Read()->utilization(), 0.0);
  clock.Advance(GpuProbe::kPeriod);
  EXPECT_EQ(probe.Read()->utilization(), 0.5);
  read = absl::UnavailableError("fell off");
  clock.Advance(GpuProbe::kPeriod);
  EXPECT_FALSE(probe.Read().has_value());
}

TEST(CloneFigures, TheTraceHasEveryPhaseOfEveryStep) {
  for (const bool sync : {true, false}) {
    MemoryFileSystem files;
    ClockOffset server_clock;
    TraceWriterOptions tracing;
    tracing.clock = &server_clock;
    auto writer = TraceWriter::Create(&files, "/t", tracing);
    ASSERT_TRUE(writer.ok()) << writer.status();
    TestServerOptions options;
    options.sync = sync;
    TestCloneOptions clone;
    clone.server_clock = &server_clock;
    clone.instruments.phases = (*writer)->Row(TraceProcessOfClone(0), "clone 0", 1, "training");
    clone.instruments.sending = (*writer)->Row(TraceProcessOfClone(0), "clone 0", 2, "sending");
    {
      Job job(options);
      job.Train(1, clone);
      // All clocks are the same, because everything runs in one process.
      const absl::Duration now = job.server.clock().Now();
      EXPECT_LT(server_clock.ErrorBound(now), absl::InfiniteDuration()) << "no sample was taken";
      EXPECT_LE(absl::AbsDuration(server_clock.ToRemote(now) - now), server_clock.ErrorBound(now));
    }
    ASSERT_EQ((*writer)->Close(), absl::OkStatus());
    std::map<std::pair<std::string, uint64_t>, int> counts;  // by phase and step
    double last_end = 0.0;
    for (const json& event : json::parse(*ReadWholeFile(files, "/t"))) {
      if (event["ph"] != "X") continue;
      const bool has_step = event["args"].contains("step");
      ++counts[{event["name"], has_step ? event["args"]["step"].get<uint64_t>() : 0}];
      if (event["tid"] != 1) continue;
      // Microseconds in a double: an overlap of a nanosecond is rounding.
      EXPECT_GE(event["ts"], last_end - 0.001) << "phases of one thread follow each other";
      last_end = event["ts"].get<double>() + event["dur"].get<double>();
    }
    for (uint64_t step = 1; step <= kSteps; ++step) {
      for (const char* phase : {"input", "compute", "push"}) {
        EXPECT_EQ((counts[{phase, step}]), 1) << phase << " of step " << step << ", sync " << sync;
      }
      const int sends = counts[{"send", step}];
      if (sync && step > 1) {
        // A push is sent again if it comes before the coordinator has learned that the step before
        // it was applied (STEP_TOO_NEW).
        EXPECT_GE(sends, 1) << "step " << step;
      } else {
        EXPECT_EQ(sends, 1) << "step " << step << ", sync " << sync;
      }
      if (sync && step < kSteps) {
        EXPECT_EQ((counts[{"pull", step}]), 1) << "pull of version " << step;
        EXPECT_EQ((counts[{"wait", step}]), 1) << "wait for version " << step;
      }
    }
  }
}

constexpr absl::Duration kInput = absl::Seconds(2);  // waiting time of one batch

// A clock on which only waiting for data takes time.
class InputClock final : public Clock {
 public:
  absl::Duration Now() const override { return kInput * loads.load(); }
  void Sleep(absl::Duration duration) override { absl::SleepFor(duration); }
  std::atomic<int> loads{0};
};

class SlowInput final : public GradientSource {
 public:
  SlowInput(GradientSource* source, InputClock* clock) : source_(source), clock_(clock) {}
  uint64_t num_images() const override { return source_->num_images(); }
  // Sets what happens in each LoadInput.
  void AtLoad(std::function<void(uint64_t position)> action) { at_load_ = std::move(action); }
  absl::Status LoadInput(uint64_t position, uint32_t) override {
    if (at_load_) at_load_(position);
    ++clock_->loads;
    return absl::OkStatus();
  }
  absl::StatusOr<GradientResult> Compute(uint64_t position, uint32_t replica,
                                         absl::Span<const float> weights,
                                         absl::Span<float> gradient,
                                         absl::FunctionRef<void(int64_t)> advance) override {
    return source_->Compute(position, replica, weights, gradient, advance);
  }

 private:
  GradientSource* const source_;
  InputClock* const clock_;
  std::function<void(uint64_t)> at_load_;
};

// Trains with rounds of so many mini-batches, for each of which the clone waits. Returns the
// seconds of each phase.
ps::PhaseSeconds TrainWithSlowInput(uint32_t local_steps) {
  InputClock clock;
  Job job;
  EXPECT_EQ(job.server.Start(), absl::OkStatus());
  PsSession::Options options;
  PsSession session(options, job.server.factory(), &job.server.clock(), nullptr);
  EXPECT_EQ(session.Connect({"task 0"}), absl::OkStatus());
  const VariableLayout& layout = job.server.job().layout;
  ToyGradientSource toy(&layout, 1);
  SlowInput slow(&toy, &clock);
  ThreadPool pool(1);
  const std::string config = absl::StrCat(
      "optimizer { momentum_optimizer { learning_rate { constant_learning_rate { learning_rate: "
      "0.1 } } } } local_steps: ",
      local_steps);
  LocalStepsSource rounds(&slow, &layout, MakeTinyConfig(config).train_config(), &pool,
                          [] { return absl::OkStatus(); });
  GradientSource* const source = local_steps > 1 ? static_cast<GradientSource*>(&rounds) : &slow;
  CloneTrainer trainer(&session, source, &layout, &clock, [](const CloneReport&) {});
  const TrainerDeadline deadline(&trainer);
  EXPECT_EQ(trainer.Run(), absl::OkStatus());
  return job.server.core().Status().clones(0).progress().phase_seconds();
}

TEST(CloneFigures, WaitingForDataDoesNotCountAsComputing) {
  for (const uint32_t local_steps : {1, 4}) {
    const ps::PhaseSeconds seconds = TrainWithSlowInput(local_steps);
    EXPECT_EQ(seconds.input(), absl::ToDoubleSeconds(kInput * kSteps * local_steps))
        << local_steps << " local steps";
    EXPECT_EQ(Sum(seconds), seconds.input());
  }
}

// Such as a spare after `psctl scale`.
TEST(CloneFigures, ACloneThatComputesNothingHasNoRate) {
  InputClock clock;
  Job job;
  ASSERT_EQ(job.server.Start(), absl::OkStatus());
  PsSession::Options options;
  PsSession session(options, job.server.factory(), &job.server.clock(), nullptr);
  ASSERT_EQ(session.Connect({"task 0"}), absl::OkStatus());
  const VariableLayout& layout = job.server.job().layout;
  ToyGradientSource toy(&layout, 1);
  SlowInput source(&toy, &clock);
  // Blocks until a heartbeat has told this, for half a minute at most.
  const auto expect_rate = [&](bool positive) {
    const auto told = [&] {
      return job.server.core().Status().clones(0).progress().images_per_second() > 0.0;
    };
    for (int i = 0; i < 3000 && told() != positive; ++i) absl::SleepFor(absl::Milliseconds(10));
    EXPECT_EQ(told(), positive);
  };
  source.AtLoad([&](uint64_t position) {
    if (position != 10) return;
    expect_rate(true);
    clock.loads += 10;
    expect_rate(false);
  });
  CloneTrainer trainer(&session, &source, &layout, &clock, [](const CloneReport&) {});
  const TrainerDeadline deadline(&trainer);
  EXPECT_EQ(trainer.Run(), absl::OkStatus());
}

}  // namespace
}  // namespace pushpull
