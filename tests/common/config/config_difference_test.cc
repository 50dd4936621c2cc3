#include "common/config/config_difference.h"

#include "gtest/gtest.h"

#include "protos/pipeline.pb.h"

namespace pushpull {
namespace {

TEST(ConfigDifference, NamesTheFirstField) {
  config::TrainEvalPipelineConfig before;
  before.mutable_model()->mutable_ssd()->set_num_classes(3);
  config::TrainEvalPipelineConfig now = before;
  EXPECT_EQ(DescribeConfigDifference(before, now, UnsetFields::kDiffer), "");
  now.mutable_model()->mutable_ssd()->set_num_classes(4);
  now.mutable_eval_config()->set_batch_size(7);
  EXPECT_EQ(DescribeConfigDifference(before, now, UnsetFields::kDiffer),
            "modified: model.ssd.num_classes: 3 -> 4");
}

TEST(ConfigDifference, ADefaultThatIsWrittenOutMayCountAsTheSame) {
  config::TrainEvalPipelineConfig before;
  before.mutable_eval_config();
  config::TrainEvalPipelineConfig now = before;
  now.mutable_eval_config()->set_num_examples(now.eval_config().num_examples());
  EXPECT_EQ(DescribeConfigDifference(before, now, UnsetFields::kAreDefaults), "");
  EXPECT_EQ(DescribeConfigDifference(before, now, UnsetFields::kDiffer),
            "added: eval_config.num_examples: 5000");
}

}  // namespace
}  // namespace pushpull
