#include "ps_server/runtime/changed_counts.h"

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/job/test_job.h"
#include "tests/testkit/warning_sink.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kCosine[] =
    "optimizer { momentum_optimizer { learning_rate { cosine_decay_learning_rate { "
    "learning_rate_base: 0.05 total_steps: 400 warmup_learning_rate: 0.01 warmup_steps: 10 } } } "
    "} ";

JobSpec Job(const std::string& train_config, uint32_t num_epochs = 0) {
  config::TrainEvalPipelineConfig config = MakeTinyConfig(train_config);
  if (num_epochs > 0) config.mutable_train_input_reader()->set_num_epochs(num_epochs);
  return JobSpec::Create(config, /*sync=*/true, /*tasks=*/1);
}

// Returns what is said of a job that goes on from the checkpoint of step 100.
std::string Changed(const JobSpec& before, const JobSpec& now, uint64_t num_images = 0) {
  EarlierConfigs earlier;
  earlier.of_checkpoint = before.config_text;
  earlier.checkpoint_step = 100;
  earlier.num_images = num_images;
  return DescribeChangedCounts(earlier, now, 100);
}

TEST(ChangedCountsTest, NamesThePlaceInTheScheduleAndInTheData) {
  EXPECT_EQ(Changed(Job(absl::StrCat(kCosine, "num_steps: 400 batch_size: 5")),
                    Job(absl::StrCat(kCosine, "num_steps: 400 batch_size: 5 local_steps: 10"))),
            "train_config.local_steps was 1 and is 10 now. The first 100 steps count as if they "
            "had been trained with the present values: as 1000 mini-batches instead of 100 (the "
            "next learning rate is 0 instead of 0.0437128), 5000 images instead of 500.");
  EXPECT_THAT(Changed(Job("batch_size: 5 local_steps: 10"), Job("batch_size: 5")),
              HasSubstr("as 100 mini-batches instead of 1000, 500 images instead of 5000."));
}

TEST(ChangedCountsTest, NamesTheEndOfTraining) {
  EXPECT_EQ(Changed(Job("num_steps: 0 batch_size: 5", 20), Job("num_steps: 0 batch_size: 10", 20),
                    /*num_images=*/50),
            "train_config.batch_size was 5 and is 10 now. The first 100 steps count as if they had "
            "been trained with the present values: as 1000 images instead of 500. Training ends "
            "with step 100 instead of step 200.");
  EXPECT_THAT(Changed(Job("num_steps: 0 batch_size: 5", 20),
                      Job("num_steps: 0 batch_size: 5 local_steps: 2", 20), /*num_images=*/50),
              HasSubstr("Training ends with step 100 instead of step 200."));
}

TEST(ChangedCountsTest, OmitsWhatDoesNotMove) {
  // The rate is constant, a step has as many images as before, and num_steps ends training.
  EXPECT_EQ(Changed(Job("batch_size: 20 num_steps: 150", 10),
                    Job("batch_size: 10 local_steps: 2 num_steps: 150", 10), /*num_images=*/1000),
            "train_config.local_steps was 1 and is 2 now, train_config.batch_size was 20 and is 10 "
            "now. The first 100 steps count as if they had been trained with the present values: "
            "as 200 mini-batches instead of 100.");
}

TEST(ChangedCountsTest, SaysNothingWhereNothingMovesOrNothingIsKnown) {
  const JobSpec one = Job("batch_size: 5");
  const JobSpec ten = Job("batch_size: 5 local_steps: 10");
  EXPECT_EQ(Changed(one, Job("batch_size: 5 num_steps: 900 seed: 4", 7), 50), "");
  EarlierConfigs earlier;
  EXPECT_EQ(DescribeChangedCounts(earlier, ten, 100), "");
  earlier.of_last_server = "field_of_another_release: 1";
  EXPECT_EQ(DescribeChangedCounts(earlier, ten, 100), "");
  earlier.of_last_server = one.config_text;
  EXPECT_EQ(DescribeChangedCounts(earlier, ten, 0), "") << "nothing has been trained";
  EXPECT_NE(DescribeChangedCounts(earlier, ten, 1), "");
}

TEST(ChangedCountsTest, MappedStateIsOfTheLastServer) {
  const JobSpec one = Job("batch_size: 5");
  const JobSpec ten = Job("batch_size: 5 local_steps: 10");
  EarlierConfigs earlier;
  earlier.of_checkpoint = one.config_text;
  earlier.checkpoint_step = 100;
  earlier.of_last_server = ten.config_text;
  EXPECT_NE(DescribeChangedCounts(earlier, ten, 100), "");
  EXPECT_EQ(DescribeChangedCounts(earlier, ten, 101), "");
  EXPECT_EQ(DescribeChangedCounts(earlier, one, 100), "");
  EXPECT_NE(DescribeChangedCounts(earlier, one, 101), "");
  earlier.of_checkpoint = "";
  EXPECT_NE(DescribeChangedCounts(earlier, one, 100), "") << "the checkpoint has no config";
}

TEST(ChangedCountsTest, AServerWarnsOfACheckpointAndOfMappedState) {
  TestFolder folder;
  TestServerOptions options;
  options.mapped = true;
  options.num_replicas = 1;
  // Trains up to `step` or a bit further, kills the server, and returns the version.
  const auto train_to = [&](const std::string& train_config, uint64_t step) {
    options.train_config = absl::StrCat("num_steps: 1000000 ", train_config);
    TestServer server(folder, options);
    EXPECT_TRUE(server.Start().ok());
    TestClone clone(&server, {});
    EXPECT_TRUE(server.Await([step](const auto& status) { return status.version() >= step; }));
    clone.Stop();
    clone.Join().IgnoreError();
    return server.core().Status().version();
  };
  std::optional<WarningSink> log(std::in_place);
  const auto warnings_since_the_last_call = [&log] {
    std::vector<std::string> found = log->With("steps count as if");
    log.emplace();
    return found;
  };
  options.train_config = "num_steps: 4";
  {
    TestServer server(folder, options);
    ASSERT_TRUE(server.Start().ok());
    std::thread training([&server] { TrainWithClones(&server, 1); });
    const absl::Status end = server.WaitAndClose();
    EXPECT_TRUE(end.ok()) << end;
    if (!end.ok()) server.Kill();
    training.join();
  }
  EXPECT_THAT(warnings_since_the_last_call(), IsEmpty());
  const uint64_t reached = train_to("local_steps: 8", 6);
  EXPECT_THAT(warnings_since_the_last_call(),
              ElementsAre(HasSubstr("was 1 and is 8 now. The first 4 steps")));
  train_to("local_steps: 8", reached + 2);
  EXPECT_THAT(warnings_since_the_last_call(), IsEmpty())
      << "the checkpoint is older than the change";
  const uint64_t last = train_to("local_steps: 8", reached + 4);
  train_to("local_steps: 2", last);
  EXPECT_THAT(warnings_since_the_last_call(),
              ElementsAre(HasSubstr(absl::StrCat("was 8 and is 2 now. The first ", last))));
}

}  // namespace
}  // namespace pushpull
