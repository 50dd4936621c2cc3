// Tests how the config of a file is validated.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/config/pipeline_config.h"
#include "common/config/validate_config.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LoadConfigOfTrainDirTest : public testing::Test {
 protected:
  void Write(const std::string& text) const { train_dir_.Write(kTrainDirConfigName, text); }

  const TestFolder train_dir_;
};

TEST_F(LoadConfigOfTrainDirTest, ReturnsTheConfigThatIsThere) {
  const std::string text = absl::StrCat("# as ps_server has written it\n", R"(
    model {
      classifier {
        num_classes: 10
        image_resizer { fixed_shape_resizer { height: 32 width: 32 } }
        feature_extractor { type: "mobilenet_v2" }
      }
    }
    train_config {
      batch_size: 7
      num_steps: 100
      sync_replicas: true
      optimizer {
        adam_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.001 } } }
      }
    }
    train_input_reader { synthetic_input_reader {} }
    eval_input_reader { synthetic_input_reader { seed: 2 } }
  )");
  Write(text);
  const auto config = LoadConfigOfTrainDir(train_dir_.path());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->train_config().batch_size(), 7);
}

TEST_F(LoadConfigOfTrainDirTest, SaysWhatTheFolderShouldBeIfThereIsNoConfig) {
  const absl::Status missing = LoadConfigOfTrainDir(train_dir_.path()).status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_EQ(missing.message(), train_dir_.path() +
                                   ": no pipeline.config there; expected the --train_dir "
                                   "of a ps_server that has started");
}

TEST_F(LoadConfigOfTrainDirTest, ListsTheProblemsOfTheConfig) {
  Write("model {}");
  const absl::Status invalid = LoadConfigOfTrainDir(train_dir_.path()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(invalid)) << invalid;
  EXPECT_THAT(std::string(invalid.message()),
              AllOf(HasSubstr(train_dir_.path() + "/pipeline.config"), HasSubstr("problem")));
  Write("no protobuf text");
  EXPECT_TRUE(absl::IsInvalidArgument(LoadConfigOfTrainDir(train_dir_.path()).status()));
}

}  // namespace
}  // namespace pushpull
