// Runs an evaluator in memory, over checkpoints that a test publishes.
#ifndef PUSHPULL_TESTS_WORKER_EVAL_EVALUATOR_TESTING_H_
#define PUSHPULL_TESTS_WORKER_EVAL_EVALUATOR_TESTING_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

#include "common/base/record_io.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/worker/eval/eval_testing.h"
#include "worker/eval/classifier_evaluation.h"
#include "worker/eval/evaluator.h"

namespace pushpull {

inline std::unique_ptr<ClassifierEvaluation> MakeClassifierEvaluation(
    const config::TrainEvalPipelineConfig& config) {
  const std::atomic<bool> go = false;
  auto evaluation = ClassifierEvaluation::Create(config, "", {}, go);
  CHECK(evaluation.ok()) << evaluation.status();
  return *std::move(evaluation);
}

// Reports the accuracy that `measure` returns for the n-th evaluation, counted from 0.
class FakeEvaluation final : public Evaluation {
 public:
  FakeEvaluation(VariableLayout layout, std::function<double(int)> measure)
      : layout_(std::move(layout)), measure_(std::move(measure)) {}
  const VariableLayout& layout() const override { return layout_; }
  double UnsettledShare(int64_t) const override { return 0.0; }
  absl::StatusOr<EvaluationReport> Run(absl::Span<const float>, int64_t, const std::atomic<bool>&,
                                       const ProgressFn& progress) override {
    EvaluationReport report;
    report.scalars = {{"accuracy", measure_(runs_++)}};
    report.export_status = export_status;
    if (on_run) on_run(progress);
    return report;
  }

  std::function<void(const ProgressFn& progress)> on_run;
  absl::Status export_status;  // of the reports

 private:
  const VariableLayout layout_;
  const std::function<double(int)> measure_;
  int runs_ = 0;
};

class EvaluatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    evaluation_ = MakeClassifierEvaluation(TinyConfig());
    options_.checkpoint_dir = "/d";
    options_.eval_dir = "/d/eval";
    ASSERT_EQ(files_.MakeDirectory("/d"), absl::OkStatus());
  }

  void Publish(uint64_t step, uint64_t weights_seed, bool done = false, uint64_t ema_seed = 0) {
    Publish({1, step, weights_seed, ema_seed, done});
  }
  void Publish(const TinyCheckpoint& checkpoint) {
    ASSERT_EQ(PublishTiny(files_, "/d", evaluation_->layout(), checkpoint), absl::OkStatus());
  }

  // Makes the next reading of a checkpoint's weights fail. They are read after the record of the
  // evaluation has been written.
  void FailWeightsOnce() {
    used_files_ = &failing_;
    weights_have_failed_ = false;
    failing_.AtFailure([this] {
      if (weights_have_failed_ || !files_.GetInfo("/d/eval/evaluating").ok()) return;
      weights_have_failed_ = true;
      failing_.Fail(FailingReads::What::kRead, ".safetensors",
                    absl::InternalError("read: Input/output error"), 0);
    });
    failing_.Fail(FailingReads::What::kRead, ".safetensors", absl::OkStatus(), 1 << 30);
  }

  // Runs with a script that acts while the evaluator sleeps. A test that never stops sleeping is
  // ended.
  absl::Status Run(
      std::function<void(int)> on_sleep = [](int) {}, Evaluation* evaluation = nullptr) {
    ScriptedClock clock([&](int call) {
      on_sleep(call);
      if (call > 100) stop_ = true;
    });
    clock_ = &clock;
    ProgressLine progress(&progress_, &clock, ProgressOptions());
    const EvaluatorContext context{used_files_, &clock, &progress, &results_, &stop_, config_};
    Evaluator evaluator(options_, context, evaluation == nullptr ? evaluation_.get() : evaluation);
    const absl::Status status = evaluator.Run();
    config_has_changed_ = evaluator.config_has_changed();
    sleeps_ = clock.sleeps();
    return status;
  }

  // Returns the steps of the accuracy events of all event files, in the order of writing.
  std::vector<int64_t> EvaluatedSteps(float* last_loss = nullptr) {
    std::vector<int64_t> steps;
    const absl::StatusOr<std::vector<std::string>> names = files_.List("/d/eval");
    if (!names.ok()) return steps;
    for (const std::string& name : *names) {
      if (!absl::StrContains(name, "tfevents")) continue;
      const auto file = files_.OpenForRead("/d/eval/" + name);
      RecordReader reader(file->get(), name);
      std::string record;
      while (*reader.Next(&record)) {
        event::Event event;
        EXPECT_TRUE(event.ParseFromString(record));
        if (event.summary().value_size() == 0) continue;
        EXPECT_EQ(event.summary().value(0).tag(), "accuracy");
        steps.push_back(event.step());
        if (event.summary().value_size() == 1) continue;  // of a FakeEvaluation
        EXPECT_EQ(event.summary().value(1).tag(), "accuracy_top5");
        EXPECT_EQ(event.summary().value(2).tag(), "loss");
        if (last_loss != nullptr) *last_loss = event.summary().value(2).simple_value();
      }
    }
    return steps;
  }

  MemoryFileSystem files_;
  FailingReads failing_{&files_};
  bool weights_have_failed_ = false;  // since FailWeightsOnce
  FileSystem* used_files_ = &files_;
  EvaluatorOptions options_;
  std::unique_ptr<ClassifierEvaluation> evaluation_;
  std::atomic<bool> stop_ = false;
  std::ostringstream progress_;
  std::ostringstream results_;
  int sleeps_ = 0;
  Clock* clock_ = nullptr;  // during Run
  ConfigWatcher* config_ = nullptr;
  bool config_has_changed_ = false;  // as Run has left it
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_WORKER_EVAL_EVALUATOR_TESTING_H_
