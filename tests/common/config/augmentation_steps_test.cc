#include "common/config/augmentation_steps.h"

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(AugmentationStepsTest, EachStepIsVisitedWithItsOwnMessage) {
  const auto* const steps =
      config::PreprocessingStep::descriptor()->FindOneofByName("preprocessing_step");
  for (int i = 0; i < steps->field_count(); ++i) {
    config::PreprocessingStep step;
    const google::protobuf::Message* const message =
        step.GetReflection()->MutableMessage(&step, steps->field(i));
    const google::protobuf::Message* const visited = VisitAugmentationStep(
        step, [](const auto& m) -> const google::protobuf::Message* { return &m; });
    EXPECT_EQ(visited, message) << steps->field(i)->name();
  }
}

TEST(AugmentationStepsTest, AStepThatIsNotSetIsNotVisited) {
  EXPECT_EQ(VisitAugmentationStep(config::PreprocessingStep(), [](const auto&) { return 1; }), 0);
}

}  // namespace
}  // namespace pushpull
