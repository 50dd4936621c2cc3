// Tests what the evaluator does when something changes around it, such as the run in its folder.
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/checkpoint/retention.h"
#include "tests/worker/eval/evaluator_testing.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Somebody has copied the last checkpoint of a finished run into the folder, for a comparison.
TEST_F(EvaluatorTest, WaitsForTheFoldersOwnRun) {
  const WarningSink sink;
  const std::string own = TinyCheckpoint().run_id;
  const std::string other(32, 'a');
  Publish({.epoch = 3, .step = 300, .training_done = true, .run_id = other});
  files_.Corrupt("/d/run_id", own + "\n");
  Publish({.step = 100});
  ASSERT_EQ(MakeDirectories(files_, "/d/eval"), absl::OkStatus());
  ASSERT_EQ(WriteBestCheckpoint(files_, "/d/eval", {300, "accuracy", 2.0, other, 3}),
            absl::OkStatus());
  std::vector<int64_t> first;
  EXPECT_EQ(Run([&](int call) {
              if (call != 2) return;
              first = EvaluatedSteps();
              Publish({.step = 200, .training_done = true});
            }),
            absl::OkStatus());
  EXPECT_THAT(first, ElementsAre(100));
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100, 200));
  const auto best = ReadBestCheckpoint(files_, "/d/eval");
  ASSERT_TRUE(best.ok() && best->has_value());
  EXPECT_EQ((*best)->run_id, own);
  EXPECT_EQ(
      sink.Count("of another run than /d, whose run is " + own + ": the checkpoints of steps 300"),
      1);
}

}  // namespace
}  // namespace pushpull
