// A clone announces the next step to its gradient source while the weights arrive, so that
// computing can begin before all weights are there.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

constexpr uint64_t kSteps = 20;

// Checks the hints before each Compute, then computes like the toy source.
class CheckingSource final : public GradientSource {
 public:
  CheckingSource(const VariableLayout* layout, uint32_t num_replicas)
      : toy_(layout, num_replicas), total_(layout->total_elements()) {}

  uint64_t num_images() const override { return toy_.num_images(); }
  absl::StatusOr<std::shared_ptr<float>> AllocateVector(int64_t elements) override {
    EXPECT_EQ(elements, total_);
    allocated_.push_back(*toy_.AllocateVector(elements));
    return allocated_.back();
  }
  void StageCompute(uint64_t position, uint32_t replica, absl::Span<const float> weights) override {
    EXPECT_EQ(staged_end_, -1) << "weights were staged before the step was announced";
    announced_ = {position, replica};
    announced_weights_ = weights.data();
    staged_end_ = 0;
    ++hints_;
  }
  void StageWeights(absl::Span<const float> weights, int64_t first, int64_t end) override {
    if (first == 0) copy_.clear();
    EXPECT_EQ(static_cast<int64_t>(copy_.size()), first);
    copy_.insert(copy_.end(), weights.begin() + first, weights.begin() + end);
    staged_weights_ = weights.data();
    staged_end_ = end;
  }
  absl::StatusOr<GradientResult> Compute(uint64_t position, uint32_t replica,
                                         absl::Span<const float> weights,
                                         absl::Span<float> gradient,
                                         absl::FunctionRef<void(int64_t)> advance) override {
    EXPECT_EQ(staged_weights_, weights.data());
    EXPECT_TRUE(std::equal(copy_.begin(), copy_.end(), weights.begin(), weights.end()))
        << "staged weights have changed";
    if (announced_weights_ != nullptr) {
      EXPECT_EQ(announced_weights_, weights.data());
      EXPECT_EQ(announced_, std::make_pair(position, replica));
      ++come_true_;
    }
    announced_weights_ = nullptr;
    staged_end_ = -1;
    for (const float* vector : {weights.data(), static_cast<const float*>(gradient.data())}) {
      EXPECT_TRUE(std::any_of(allocated_.begin(), allocated_.end(), [&](const auto& own) {
        return own.get() == vector;
      })) << "the vector is not from AllocateVector";
    }
    return toy_.Compute(position, replica, weights, gradient, advance);
  }

  uint64_t hints() const { return hints_; }
  uint64_t come_true() const { return come_true_; }

 private:
  ToyGradientSource toy_;
  const int64_t total_;
  std::vector<std::shared_ptr<float>> allocated_;
  std::pair<uint64_t, uint32_t> announced_;
  const float* announced_weights_ = nullptr;
  const float* staged_weights_ = nullptr;
  int64_t staged_end_ = -1;
  std::vector<float> copy_;
  uint64_t hints_ = 0;
  uint64_t come_true_ = 0;
};

void TrainAndCheck(const TestServerOptions& server_options, uint64_t least_hints) {
  TestFolder folder;
  TestServer server(folder, server_options);
  ASSERT_EQ(server.Start(), absl::OkStatus());
  PsSession session({}, server.factory(), &server.clock(), nullptr);
  ASSERT_EQ(session.Connect({"task 0"}), absl::OkStatus());
  const VariableLayout& layout = server.job().layout;
  CheckingSource source(&layout, 1);
  absl::Status trained;
  std::thread training([&] {
    CloneTrainer trainer(&session, &source, &layout, &server.clock(), [](const CloneReport&) {});
    const TrainerDeadline deadline(&trainer);
    trained = trainer.Run();
  });
  const absl::Status end = server.WaitAndClose();
  EXPECT_EQ(end, absl::OkStatus());
  if (!end.ok()) session.Stop();
  training.join();
  EXPECT_EQ(trained, absl::OkStatus());
  EXPECT_GE(source.hints(), least_hints);
  EXPECT_EQ(source.come_true(), source.hints()) << "every announced step must be computed";
}

TEST(CloneHintsTest, AnnouncesEverySynchronousStepButTheFirst) {
  TrainAndCheck({}, kSteps - 1);
  TrainAndCheck({.large_elements = 300000, .tasks = 2}, kSteps - 1);
}

TEST(CloneHintsTest, AnnouncesAsynchronousSteps) { TrainAndCheck({.sync = false}, kSteps); }

}  // namespace
}  // namespace pushpull
