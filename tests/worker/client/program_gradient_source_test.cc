#include "worker/client/program_gradient_source.h"

#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/status_macros.h"
#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

absl::StatusOr<ProgramBatch> Next(ProgramGradientSource* source, absl::Duration timeout) {
  ProgramBatch batch;
  PP_RETURN_IF_ERROR(source->Next(timeout, &batch));
  return batch;
}

// Lets a trainer's thread compute one batch, and notes what it got.
class Trainer {
 public:
  explicit Trainer(ProgramGradientSource* source) : source_(source) {
    const auto vector = source->AllocateVector(8);
    weights_ = *vector;
    gradient_ = *source->AllocateVector(8);
    source->NoteWeights(11, absl::MakeConstSpan(weights_.get(), 8));
  }
  void Start(uint64_t position) {
    thread_ = std::thread([this, position] {
      result_ = source_->Compute(position, 2, absl::MakeConstSpan(weights_.get(), 8),
                                 absl::MakeSpan(gradient_.get(), 8),
                                 [this](int64_t first_final) { advances_.push_back(first_final); });
    });
  }
  absl::StatusOr<GradientResult> Join() {
    thread_.join();
    return std::move(result_);
  }
  // To be called after Join.
  const std::vector<int64_t>& advances() const { return advances_; }
  const float* weights() const { return weights_.get(); }
  const float* gradient() const { return gradient_.get(); }

 private:
  ProgramGradientSource* const source_;
  std::shared_ptr<float> weights_;
  std::shared_ptr<float> gradient_;
  std::vector<int64_t> advances_;
  absl::StatusOr<GradientResult> result_;
  std::thread thread_;
};

TEST(ProgramGradientSourceTest, HandsABatchToTheProgramAndTheResultBack) {
  ProgramGradientSource source(100);
  EXPECT_EQ(source.num_images(), 100);
  Trainer trainer(&source);
  trainer.Start(5);
  const auto batch = Next(&source, absl::InfiniteDuration());
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_FALSE(batch->over);
  EXPECT_EQ(batch->position, 5);
  EXPECT_EQ(batch->replica, 2);
  EXPECT_EQ(batch->version, 11);
  EXPECT_EQ(batch->weights.data(), trainer.weights());
  EXPECT_EQ(batch->gradient.data(), trainer.gradient());
  source.Advance(6);
  source.Advance(7);  // was said before
  source.Advance(6);
  source.Advance(2);
  source.Advance(-3);  // everything
  GradientResult result;
  result.samples = 31;
  ASSERT_EQ(source.Finish(result), absl::OkStatus());
  const auto returned = trainer.Join();
  ASSERT_TRUE(returned.ok()) << returned.status();
  EXPECT_EQ(returned->samples, 31);
  EXPECT_EQ(trainer.advances(), (std::vector<int64_t>{6, 2, 0}));
  EXPECT_TRUE(absl::IsFailedPrecondition(source.Finish(result)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Next(&source, absl::ZeroDuration()).status()));
}

TEST(ProgramGradientSourceTest, GivesABatchUp) {
  ProgramGradientSource source(100);
  Trainer trainer(&source);
  trainer.Start(0);
  ASSERT_TRUE(Next(&source, absl::InfiniteDuration()).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Next(&source, absl::ZeroDuration()).status()));
  ASSERT_EQ(source.GiveUp(absl::AbortedError("no")), absl::OkStatus());
  EXPECT_EQ(trainer.Join().status(), absl::AbortedError("no"));
  source.End(absl::AbortedError("no"));
  ProgramBatch batch;
  EXPECT_EQ(source.Next(absl::InfiniteDuration(), &batch), absl::AbortedError("no"));
  EXPECT_TRUE(batch.over);
}

TEST(ProgramGradientSourceTest, StopEndsAllWaits) {
  ProgramGradientSource offered(100);
  Trainer waits_for_program(&offered);
  waits_for_program.Start(0);
  offered.Stop();
  EXPECT_TRUE(absl::IsCancelled(waits_for_program.Join().status()));

  ProgramGradientSource taken(100);
  Trainer waits_for_result(&taken);
  waits_for_result.Start(0);
  const auto batch = Next(&taken, absl::InfiniteDuration());
  ASSERT_TRUE(batch.ok());
  taken.Stop();
  EXPECT_TRUE(absl::IsCancelled(waits_for_result.Join().status()));
  batch->gradient[7] = batch->weights[7];  // the memory is still there
  taken.Advance(0);                        // has no effect
  EXPECT_TRUE(waits_for_result.advances().empty());
  EXPECT_TRUE(absl::IsCancelled(taken.Finish({})));

  ProgramGradientSource idle(100);
  std::thread program(
      [&idle] { EXPECT_TRUE(absl::IsCancelled(Next(&idle, absl::InfiniteDuration()).status())); });
  idle.Stop();
  program.join();
}

TEST(ProgramGradientSourceTest, TheEndHasTheLastWeights) {
  ProgramGradientSource source(100);
  Trainer trainer(&source);
  source.End(absl::OkStatus());
  for (int i = 0; i < 2; ++i) {
    const auto batch = Next(&source, absl::InfiniteDuration());
    ASSERT_TRUE(batch.ok());
    EXPECT_TRUE(batch->over);
    EXPECT_EQ(batch->version, 11);
    EXPECT_EQ(batch->weights.data(), trainer.weights());
    EXPECT_TRUE(batch->gradient.empty());
  }
}

TEST(ProgramGradientSourceTest, RefusesAVectorThatDoesNotFitIntoMemory) {
  ProgramGradientSource source(100);
  EXPECT_TRUE(absl::IsResourceExhausted(source.AllocateVector(int64_t{1} << 59).status()));
}

// A whole job in one process, with a second thread that announces what is final.
TEST(ProgramGradientSourceTest, TrainsToTheSameBitsAsAnotherSource) {
  const std::vector<float> expected = TrainedState(1);
  TestFolder folder;
  TestServer server(folder, {});
  ASSERT_EQ(server.Start(), absl::OkStatus());
  PsSession session({}, server.factory(), &server.clock(), nullptr);
  ASSERT_EQ(session.Connect({"task 0"}), absl::OkStatus());
  const VariableLayout layout = server.job().layout;
  ProgramGradientSource source(ToyGradientSource::kNumImages);
  int registrations = 0;
  CloneTrainerOptions options;
  options.on_registered = [&registrations] { ++registrations; };
  options.pull_last_weights = true;
  CloneTrainer trainer(
      &session, &source, &layout, &server.clock(), [](const CloneReport&) {}, options);
  std::thread training([&] { source.End(trainer.Run()); });
  std::thread end([&server] { EXPECT_EQ(server.WaitAndClose(), absl::OkStatus()); });
  ToyGradientSource toy(&layout, 1);
  uint64_t last_version = 0;
  for (;;) {
    const auto batch = Next(&source, absl::Minutes(1));
    ASSERT_TRUE(batch.ok()) << batch.status();
    last_version = batch->version;
    if (batch->over) break;
    std::vector<std::thread> announcing;
    const auto result = toy.Compute(
        batch->position, batch->replica, batch->weights, batch->gradient, [&](int64_t first_final) {
          announcing.emplace_back([&source, first_final] { source.Advance(first_final); });
        });
    for (std::thread& thread : announcing) thread.join();
    ASSERT_EQ(source.Finish(*result), absl::OkStatus());
  }
  training.join();
  end.join();
  EXPECT_EQ(registrations, 1);
  EXPECT_EQ(last_version, 20);
  EXPECT_EQ(server.Checkpointed(20), expected);
}

}  // namespace
}  // namespace pushpull
