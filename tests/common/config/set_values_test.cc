#include "common/config/set_values.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "protos/pipeline.pb.h"

namespace pushpull {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::testing::ElementsAre;

std::vector<std::string> PathsIn(const std::string& text, const std::string& left_out) {
  config::TrainEvalPipelineConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  std::vector<std::string> paths;
  ForEachSetValue(
      config,
      [&](const Message&, const FieldDescriptor&, const std::string& path) {
        return path != left_out;
      },
      [&](const SetValue& value) { paths.push_back(value.path); });
  return paths;
}

TEST(SetValuesTest, VisitsWhatIsSetInTheOrderOfTheSchema) {
  const std::string text =
      "train_config { batch_size: 8 freeze_variables: 'a' freeze_variables: 'b' "
      "  data_augmentation_options { random_horizontal_flip {} } "
      "  data_augmentation_options { random_crop_image { min_area: 0.5 } } } "
      "eval_config {}";
  EXPECT_THAT(PathsIn(text, ""),
              ElementsAre("train_config.batch_size",
                          "train_config.data_augmentation_options[1].random_crop_image.min_area",
                          "train_config.freeze_variables[0]", "train_config.freeze_variables[1]"));
  EXPECT_THAT(PathsIn(text, "train_config.data_augmentation_options"),
              ElementsAre("train_config.batch_size", "train_config.freeze_variables[0]",
                          "train_config.freeze_variables[1]"));
  EXPECT_THAT(PathsIn(text, "train_config"), ElementsAre());
}

}  // namespace
}  // namespace pushpull
