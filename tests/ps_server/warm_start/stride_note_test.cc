#include "ps_server/warm_start/stride_note.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/model_layout.h"
#include "tests/testkit/ssd_test_config.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

NetworkSpec Classifier(const std::string& type) {
  config::DetectionModel model;
  config::Classifier* const classifier = model.mutable_classifier();
  classifier->set_num_classes(10);
  classifier->mutable_image_resizer()->mutable_fixed_shape_resizer();
  classifier->mutable_feature_extractor()->set_type(type);
  return BuildNetworkSpec(model);
}

NetworkSpec Detector(const std::string& type) {
  return BuildNetworkSpec(MakeSsdTestConfig(type, SsdTestSettings(type, 128)).model());
}

bool All(int) { return true; }
bool None(int) { return false; }

TEST(StrideNoteTest, TheSameStridesGiveNoNote) {
  EXPECT_EQ(StrideNote(Classifier("resnet_v1_50"), Classifier("resnet_v1_50"), All), "");
  EXPECT_EQ(StrideNote(Detector("ssd_mobilenet_v2"), Classifier("mobilenet_v2"), All), "");
}

// The classifier has its strides in the 3x3 convolutions of a block's first unit, slim's detector
// has them after the blocks, and Keras's in the first convolutions of these units.
TEST(StrideNoteTest, CountsTheConvolutionsAndNamesTheFirst) {
  const NetworkSpec classifier = Classifier("resnet_v1_50");
  const std::string unit = "FeatureExtractor/resnet_v1_50/block2/unit_1/bottleneck_v1/";
  EXPECT_THAT(StrideNote(Detector("ssd_resnet50_v1_fpn"), classifier, All),
              AllOf(HasSubstr("6 convolutions"),
                    HasSubstr(unit + "conv2/weights (stride 1 here, 2 there)")));
  EXPECT_THAT(StrideNote(Detector("ssd_resnet50_v1_fpn_keras"), classifier, All),
              AllOf(HasSubstr("6 convolutions"),
                    HasSubstr(unit + "conv1/weights (stride 2 here, 1 there)")));
}

TEST(StrideNoteTest, LayersThatKeepTheirInitialWeightsDoNotCount) {
  EXPECT_EQ(StrideNote(Detector("ssd_resnet50_v1_fpn"), Classifier("resnet_v1_50"), None), "");
}

}  // namespace
}  // namespace pushpull
