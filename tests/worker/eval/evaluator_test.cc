#include "worker/eval/evaluator.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "common/checkpoint/checkpoint_writer.h"
#include "common/model/model_layout.h"
#include "tests/testkit/damaged_records.h"
#include "tests/testkit/failing_reads.h"
#include "tests/worker/eval/evaluator_testing.h"
#include "worker/eval/classifier_evaluation.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ClassifierEvaluation, DoesNotDependOnTheBatchSize) {
  const std::atomic<bool> go = false;
  std::vector<ClassificationMetrics> results;
  for (const int batch_size : {1, 7, 24, 100}) {
    config::TrainEvalPipelineConfig config = TinyConfig();
    config.mutable_eval_config()->set_batch_size(batch_size);
    const auto evaluation = MakeClassifierEvaluation(config);
    const std::vector<float> weights = TinyWeights(evaluation->layout(), 3);
    const auto metrics = evaluation->Measure(weights, 100, go);
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    EXPECT_EQ(metrics->examples, 24);
    results.push_back(*metrics);
  }
  for (const ClassificationMetrics& metrics : results) {
    EXPECT_EQ(metrics.accuracy, results[0].accuracy);
    EXPECT_EQ(metrics.accuracy_top5, results[0].accuracy_top5);
    EXPECT_NEAR(metrics.loss, results[0].loss, 1e-5 * results[0].loss);
    EXPECT_GE(metrics.accuracy_top5, metrics.accuracy);
    EXPECT_GT(metrics.loss, 0.0);
  }
}

TEST(ClassifierEvaluation, OpeningTheDataEndsWhenItIsStopped) {
  const DamagedRecords records;
  config::TrainEvalPipelineConfig config = TinyConfig();
  *config.mutable_eval_input_reader(0) = records.Reader();
  std::atomic<bool> stop = false;
  const auto create = [&] {
    return ClassifierEvaluation::Create(config, "", {}, stop).status().code();
  };
  EXPECT_EQ(create(), absl::StatusCode::kDataLoss);
  stop = true;
  EXPECT_EQ(create(), absl::StatusCode::kCancelled);
}

TEST(ClassifierEvaluation, UsesTheWholeSetWhenItIsSmaller) {
  config::TrainEvalPipelineConfig config = TinyConfig();
  config.mutable_eval_config()->set_num_examples(5000);
  EXPECT_EQ(MakeClassifierEvaluation(config)->num_examples(), 30);
}

TEST(ClassifierEvaluation, SaysThatTheModelHasDiverged) {
  const std::atomic<bool> go = false;
  const auto evaluation = MakeClassifierEvaluation(TinyConfig());
  std::vector<float> weights = TinyWeights(evaluation->layout(), 3);
  EXPECT_EQ(evaluation->Run(weights, 10, go, nullptr)->explanation, "");
  std::fill(weights.begin(), weights.end(), std::nanf(""));
  const auto report = evaluation->Run(weights, 10, go, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->explanation, HasSubstr("the model has diverged: "));
}

TEST(ClassifierEvaluation, ComputesTheShareOfTheInitialStatistics) {
  config::TrainEvalPipelineConfig config = TinyConfig();
  EXPECT_NEAR(MakeClassifierEvaluation(config)->UnsettledShare(10), 0.348678, 1e-5);
  config.mutable_model()
      ->mutable_classifier()
      ->mutable_feature_extractor()
      ->mutable_conv_hyperparams()
      ->mutable_batch_norm()
      ->set_bias_corrected_moving_statistics(true);
  EXPECT_EQ(MakeClassifierEvaluation(config)->UnsettledShare(10), 0.0);
}

TEST_F(EvaluatorTest, ALongEvaluationSaysHowFarItIs) {
  const WarningSink sink;
  Publish(100, 1);
  options_.run_once = true;
  FakeEvaluation fake(evaluation_->layout(), [](int) { return 0.5; });
  fake.on_run = [this](const Evaluation::ProgressFn& progress) {
    ASSERT_TRUE(progress);
    for (int done = 8; done <= 40; done += 8) {
      clock_->Sleep(absl::Seconds(6));
      progress(done, 40);
    }
  };
  EXPECT_EQ(Run([](int) {}, &fake), absl::OkStatus());
  std::vector<std::string> said;
  for (const std::string& line : sink.infos()) {
    if (absl::StrContains(line, "evaluating step")) said.push_back(line);
  }
  EXPECT_THAT(said, ElementsAre("evaluating step 100: 16 of 40 examples",
                                "evaluating step 100: 32 of 40 examples"));
}

TEST_F(EvaluatorTest, FollowsARunToItsEnd) {
  const absl::Status status = Run([&](int call) {
    if (call == 2) Publish(100, 1);
    if (call == 4) {
      Publish(200, 2);
      Publish(300, 3);
    }
    if (call == 6) Publish(400, 4, /*done=*/true);
  });
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100, 300, 200, 400));
  EXPECT_THAT(progress_.str(), HasSubstr("waiting for a checkpoint in /d (none yet)"));
  EXPECT_THAT(progress_.str(), HasSubstr("last evaluated: step 200"));
  EXPECT_EQ(results_.str(), "");
}

TEST_F(EvaluatorTest, EndsWhenTheLastStepIsRepublishedAsDone) {
  Publish(100, 1);
  EXPECT_EQ(Run([&](int call) {
              if (call == 3) Publish(100, 1, /*done=*/true);
            }),
            absl::OkStatus());
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100));
  EXPECT_EQ(sleeps_, 4);
}

TEST_F(EvaluatorTest, FollowsAFinishedRunThatIsContinued) {
  files_.Corrupt("/d/pipeline.config", "train_config { num_steps: 200 }");
  Publish(100, 1, /*done=*/true);  // by a server whose limit was 100
  EXPECT_EQ(Run([&](int call) {
              if (call == 3) Publish(200, 2, /*done=*/true);
            }),
            absl::OkStatus());
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100, 200));
}

TEST_F(EvaluatorTest, EndsWithTheLastCheckpointEvenIfOlderOnesWait) {
  Publish(100, 1);
  Publish(200, 2, /*done=*/true);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(200));
}

TEST_F(EvaluatorTest, KeepsTheBestByAccuracy) {
  Publish(100, 1);
  Publish(200, 2);
  Publish(300, 3);
  options_.max_evals = 3;  // all three, newest first
  double best = -1.0;
  uint64_t best_step = 0;
  for (const uint64_t seed : {3, 2, 1}) {
    const std::vector<float> weights = TinyWeights(evaluation_->layout(), seed);
    const ClassificationMetrics metrics = *evaluation_->Measure(weights, 100 * seed, stop_);
    if (metrics.accuracy > best) {
      best = metrics.accuracy;
      best_step = 100 * seed;
    }
  }
  EXPECT_EQ(Run(), absl::OkStatus());
  const auto stored = ReadBestCheckpoint(files_, "/d/eval");
  ASSERT_TRUE(stored.ok() && stored->has_value());
  EXPECT_EQ((*stored)->step, best_step);
  EXPECT_EQ((*stored)->value, best);
  EXPECT_EQ((*stored)->metric, "accuracy");
}

TEST_F(EvaluatorTest, KeepsAnOlderBestOnlyWhileItsCheckpointExists) {
  ASSERT_EQ(MakeDirectories(files_, "/d/eval"), absl::OkStatus());
  Publish(50, 1);
  Publish(100, 1, /*done=*/true);
  ASSERT_EQ(WriteBestCheckpoint(files_, "/d/eval", {50, "accuracy", 2.0}), absl::OkStatus());
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ((**ReadBestCheckpoint(files_, "/d/eval")).step, 50);
  ASSERT_EQ(RemoveRecursively(files_, "/d/ckpt-00000050"), absl::OkStatus());
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ((**ReadBestCheckpoint(files_, "/d/eval")).step, 100);
}

TEST_F(EvaluatorTest, TheBestIsACheckpointThatExists) {
  const WarningSink sink;
  Publish(100, 1);
  options_.max_evals = 2;
  FakeEvaluation fake(evaluation_->layout(), [&](int run) {
    if (run == 0) return 0.5;
    EXPECT_EQ(RemoveRecursively(files_, "/d/ckpt-00000200"), absl::OkStatus());
    return 0.75;
  });
  const auto publish_second = [&](int call) {
    if (call == 0) Publish(200, 2);
  };
  EXPECT_EQ(Run(publish_second, &fake), absl::OkStatus());
  const auto best = ReadBestCheckpoint(files_, "/d/eval");
  ASSERT_TRUE(best.ok() && best->has_value());
  EXPECT_EQ((*best)->step, 100);
  EXPECT_EQ((*best)->value, 0.5);
  EXPECT_EQ(sink.Count("step 200 has the best accuracy so far, 0.7500"), 1);
  EXPECT_EQ(sink.Count("raise train_config.max_to_keep"), 1);
}

TEST_F(EvaluatorTest, SaysThatMaxEvalsEndsItBeforeTraining) {
  options_.max_evals = 1;
  for (const bool done : {false, true}) {
    const WarningSink sink;
    Publish(done ? 200 : 100, 1, done);
    EXPECT_EQ(Run(), absl::OkStatus());
    EXPECT_EQ(sink.Count("eval_config.max_evals is 1"), done ? 0 : 1);
  }
}

// The server publishes and deletes checkpoints faster than they are evaluated.
TEST_F(EvaluatorTest, TheCheckpointThatIsEvaluatedStays) {
  Publish(100, 1);
  options_.max_evals = 1;
  const RetentionPolicy policy = {1, absl::InfiniteDuration()};
  const std::string run_id = TinyCheckpoint().run_id;
  FakeEvaluation fake(evaluation_->layout(), [&](int) {
    Publish(200, 2);
    Publish(300, 3);
    EXPECT_EQ(ApplyRetention(files_, "/d", run_id, policy), absl::OkStatus());
    return 0.5;
  });
  EXPECT_EQ(Run([](int) {}, &fake), absl::OkStatus());
  EXPECT_TRUE(absl::IsNotFound(files_.GetInfo("/d/eval/evaluating").status()));
  Publish(400, 4);
  EXPECT_EQ(ApplyRetention(files_, "/d", run_id, policy), absl::OkStatus());
  EXPECT_THAT(*ListCheckpoints(files_, "/d"), ElementsAre(100, 400));
  EXPECT_EQ((**ReadBestCheckpoint(files_, "/d/eval")).step, 100);
}

TEST_F(EvaluatorTest, RunOncePrintsOneJsonObject) {
  Publish(100, 1);
  Publish(200, 2);
  options_.run_once = true;
  EXPECT_EQ(Run(), absl::OkStatus());
  const nlohmann::json result = nlohmann::json::parse(results_.str());
  const std::vector<float> weights = TinyWeights(evaluation_->layout(), 2);
  const ClassificationMetrics metrics = *evaluation_->Measure(weights, 200, stop_);
  EXPECT_EQ(result["step"], 200);
  EXPECT_EQ(result["examples"], 24);
  EXPECT_EQ(result["accuracy"].get<double>(), metrics.accuracy);
  EXPECT_EQ(result["accuracy_top5"].get<double>(), metrics.accuracy_top5);
  EXPECT_EQ(result["loss"].get<double>(), metrics.loss);
  EXPECT_EQ(result.size(), 5);
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(200));
}

TEST_F(EvaluatorTest, RunOnceStopsWaiting) {
  options_.run_once = true;
  options_.wait = absl::Seconds(5);
  const absl::Status none = Run();
  EXPECT_TRUE(absl::IsDeadlineExceeded(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("there is no checkpoint in /d"));
  EXPECT_EQ(sleeps_, 5);

  Publish(100, 1);
  files_.Corrupt("/d/ckpt-00000100/MANIFEST.json", "{}");
  const absl::Status damaged = Run();
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("ckpt-00000100"));
}

// It may be the configuration of somebody who tries something while the run's own evaluator works.
TEST_F(EvaluatorTest, LeavesTheBestCheckpointToOthersIfToldTo) {
  Publish(100, 1);
  options_.run_once = true;
  options_.records_best = false;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(nlohmann::json::parse(results_.str())["step"], 100);
  EXPECT_THAT(*files_.List("/d/eval"), ElementsAre(HasSubstr("tfevents")));

  // The folder of a finished run may be read-only.
  results_.str("");
  files_.SetFault(FileFault{FileFault::Kind::kDiskFull, 0, /*lasting=*/true});
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(nlohmann::json::parse(results_.str())["step"], 100);
}

// A damaged checkpoint says nothing about one that cannot be read at the moment.
TEST_F(EvaluatorTest, RunOnceWaitsForACheckpointThatCannotBeRead) {
  for (const uint64_t step : {100, 200, 300}) Publish(step, 1);
  files_.Corrupt("/d/ckpt-00000200/MANIFEST.json", "{}");
  used_files_ = &failing_;
  const absl::Status io_error = absl::InternalError("read: Input/output error");
  failing_.Fail(FailingReads::What::kRead, "ckpt-00000300/MANIFEST.json", io_error, 3);
  options_.run_once = true;
  options_.records_best = false;
  options_.wait = absl::Seconds(5);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(nlohmann::json::parse(results_.str())["step"], 300);
  EXPECT_EQ(sleeps_, 3);
  // It cannot be read in time, so the newest of the others is evaluated, with a warning.
  const WarningSink sink;
  failing_.Fail(FailingReads::What::kRead, "ckpt-00000300/MANIFEST.json", io_error, 100);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(sleeps_, 5);
  EXPECT_THAT(sink.warnings().back(),
              AllOf(HasSubstr("ckpt-00000100 is evaluated"), HasSubstr("ckpt-00000200: "),
                    HasSubstr("ckpt-00000300: "), HasSubstr("read: Input/output error")));
}

TEST_F(EvaluatorTest, RunOnceDoesNotWaitForAnOlderCheckpoint) {
  for (const uint64_t step : {100, 200}) Publish(step, 1);
  used_files_ = &failing_;
  const absl::Status denied = absl::PermissionDeniedError("open: Permission denied");
  failing_.Fail(FailingReads::What::kOpen, "ckpt-00000100/MANIFEST.json", denied, 1000);
  options_.run_once = true;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(nlohmann::json::parse(results_.str())["step"], 200);
  EXPECT_EQ(sleeps_, 0);
  ASSERT_EQ(RemoveRecursively(files_, "/d/ckpt-00000200"), absl::OkStatus());
  options_.wait = absl::Seconds(5);
  EXPECT_THAT(Run().ToString(), AllOf(HasSubstr("UNAVAILABLE: "),
                                      HasSubstr("ckpt-00000100: open: Permission denied")));
}

// The metrics are printed all the same, and the files are written when the disk has room again.
TEST_F(EvaluatorTest, AFullDiskDoesNotLoseAMeasurement) {
  Publish(100, 1);
  options_.run_once = true;
  FakeEvaluation fake(evaluation_->layout(), [&](int) {
    files_.SetFault(FileFault{FileFault::Kind::kDiskFull, 0, /*lasting=*/true});
    return 0.5;
  });
  const auto make_room = [&](int call) {
    EXPECT_EQ(nlohmann::json::parse(results_.str())["accuracy"], 0.5);
    EXPECT_TRUE(files_.GetInfo("/d/eval/evaluating").ok());
    if (call == 2) files_.SetFault(std::nullopt);
  };
  EXPECT_EQ(Run(make_room, &fake), absl::OkStatus());
  const auto best = ReadBestCheckpoint(files_, "/d/eval");
  ASSERT_TRUE(best.ok() && best->has_value());
  EXPECT_EQ((*best)->value, 0.5);
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100));
  EXPECT_TRUE(absl::IsNotFound(files_.GetInfo("/d/eval/evaluating").status()));
}

// `ps_server --from_checkpoint` gives up the best checkpoint. The highest value since then counts.
TEST_F(EvaluatorTest, TheBestOfStepsThatWereGivenUpDoesNotCount) {
  options_.max_evals = 3;
  Publish(200, 1);
  const double values[] = {0.9, 0.4, 0.3};
  FakeEvaluation fake(evaluation_->layout(), [&](int run) { return values[run]; });
  const auto train_again = [&](int call) {
    if (call == 1) Publish({.epoch = 2, .step = 200});
    if (call == 3) Publish({.epoch = 2, .step = 300});
  };
  EXPECT_EQ(Run(train_again, &fake), absl::OkStatus());
  const auto best = ReadBestCheckpoint(files_, "/d/eval");
  ASSERT_TRUE(best.ok() && best->has_value());
  EXPECT_EQ((*best)->step, 200);
  EXPECT_EQ((*best)->value, 0.4);
  EXPECT_EQ((*best)->epoch, 2);
}

// Somebody empties the folder and trains anew.
TEST_F(EvaluatorTest, FollowsAnotherRunInTheSameFolder) {
  const WarningSink sink;
  options_.max_evals = 2;
  Publish(100, 1);
  FakeEvaluation fake(evaluation_->layout(), [&](int run) { return 0.9 - 0.5 * run; });
  const auto start_anew = [&](int call) {
    if (call != 1) return;
    for (const char* path : {"/d/ckpt-00000100", "/d/eval"}) {
      ASSERT_EQ(RemoveRecursively(files_, path), absl::OkStatus());
    }
    Publish({.step = 100, .run_id = std::string(32, 'e')});
  };
  EXPECT_EQ(Run(start_anew, &fake), absl::OkStatus());
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100));
  const auto best = ReadBestCheckpoint(files_, "/d/eval");
  ASSERT_TRUE(best.ok() && best->has_value());
  EXPECT_EQ((*best)->run_id, std::string(32, 'e'));
  EXPECT_NEAR((*best)->value, 0.4, 1e-9);
  EXPECT_EQ(sink.Count("checkpoints of another run"), 1);
}

// The one who makes it may only be late, so a scheduler should start the evaluator again.
TEST_F(EvaluatorTest, AMissingDirectoryIsAMissedDeadline) {
  options_.checkpoint_dir = "/nowhere";
  options_.wait = absl::Seconds(40);
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere does not exist"));
  EXPECT_THAT(progress_.str(), HasSubstr("/nowhere (does not exist yet) 30 s"));
}

TEST_F(EvaluatorTest, WaitsForADirectoryThatAFailedStartHasRemoved) {
  EXPECT_EQ(Run([&](int call) {
              ASSERT_TRUE(call != 1 || files_.RemoveDirectory("/d").ok());
              ASSERT_TRUE(call != 2 || files_.MakeDirectory("/d").ok());
              if (call == 3) Publish(300, 3, /*done=*/true);
            }),
            absl::OkStatus());
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(300));
}

TEST_F(EvaluatorTest, EvaluatesMovingAveragesOnRequest) {
  Publish(100, 1, /*done=*/true, /*ema_seed=*/9);
  options_.use_moving_averages = true;
  EXPECT_EQ(Run(), absl::OkStatus());
  float loss = 0.0f;
  EvaluatedSteps(&loss);
  // Moving statistics have no moving average, so they are the same in both vectors.
  const std::vector<float> ema = TinyWeights(evaluation_->layout(), 9);
  const std::vector<float> raw = TinyWeights(evaluation_->layout(), 1);
  EXPECT_EQ(loss, static_cast<float>(evaluation_->Measure(ema, 100, stop_)->loss));
  EXPECT_NE(loss, static_cast<float>(evaluation_->Measure(raw, 100, stop_)->loss));
}

TEST_F(EvaluatorTest, NamesMissingMovingAverages) {
  Publish(100, 1);
  options_.use_moving_averages = true;
  const absl::Status status = Run();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("ExponentialMovingAverage"));
}

TEST_F(EvaluatorTest, RefusesAnotherModel) {
  config::TrainEvalPipelineConfig other = TinyConfig();
  other.mutable_model()->mutable_classifier()->set_hidden_units(16);
  const VariableLayout layout = BuildVariableLayout(other);
  ASSERT_EQ(PublishTiny(files_, "/d", layout, {1, 100, 1, 0, false}), absl::OkStatus());
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("differs"));
}

TEST_F(EvaluatorTest, WarnsOncePerCheckpointIfStatisticsHaveNotSettled) {
  const WarningSink sink;
  Publish(10, 1);
  Publish(20, 1);
  Publish(100, 1, /*done=*/true);
  EXPECT_EQ(Run(), absl::OkStatus());  // 0.9^100 is negligible
  EXPECT_EQ(sink.Count("initial values"), 0);
  ASSERT_EQ(RemoveRecursively(files_, "/d/ckpt-00000100"), absl::OkStatus());
  options_.max_evals = 2;
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(sink.Count("step 10: after 10 updates"), 1);
  EXPECT_EQ(sink.Count("34.9%"), 1);
  EXPECT_EQ(sink.Count("step 20: after 20 updates"), 1);
  EXPECT_EQ(sink.Count("12.2%"), 1);
}

TEST_F(EvaluatorTest, ASignalEndsWaitingAndEvaluating) {
  EXPECT_TRUE(absl::IsCancelled(Run([&](int call) { stop_ = call == 2; })));
  EXPECT_EQ(sleeps_, 3);
  stop_ = true;
  const std::vector<float> weights = TinyWeights(evaluation_->layout(), 1);
  EXPECT_TRUE(absl::IsCancelled(evaluation_->Measure(weights, 1, stop_).status()));
}

TEST_F(EvaluatorTest, PausesBetweenEvaluationsButNotBeforeTheLast) {
  options_.eval_interval = absl::Seconds(20);
  Publish(10, 1);
  std::vector<size_t> evaluated;
  EXPECT_EQ(Run([&](int call) {
              if (call == 0) Publish(20, 1);
              evaluated.push_back(EvaluatedSteps().size());
              if (call == 30) Publish(30, 1, /*done=*/true);
            }),
            absl::OkStatus());
  EXPECT_EQ(evaluated[18], 1);
  EXPECT_EQ(evaluated[22], 2);
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(10, 20, 30));
  EXPECT_EQ(sleeps_, 31);
}

TEST_F(EvaluatorTest, ACheckpointThatCouldNotBeReadCostsNoPause) {
  options_.eval_interval = absl::Seconds(20);
  options_.max_evals = 1;
  Publish(10, 1);
  used_files_ = &failing_;
  failing_.Fail(FailingReads::What::kRead, ".safetensors", absl::InternalError("read: EIO"), 1);
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(failing_.failed(), 1);
  EXPECT_EQ(sleeps_, 1);
}

TEST_F(EvaluatorTest, SkipsDamagedCheckpoints) {
  Publish(100, 1);
  Publish(200, 2);
  const std::string path = "/d/ckpt-00000200/shard-00000-of-00001.safetensors";
  std::string bytes = *ReadWholeFile(files_, path);
  bytes[bytes.size() / 2] ^= 1;
  files_.Corrupt(path, bytes);
  EXPECT_EQ(Run([&](int call) {
              if (call == 1) Publish(300, 3, /*done=*/true);
            }),
            absl::OkStatus());
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100, 300));
}

}  // namespace
}  // namespace pushpull
