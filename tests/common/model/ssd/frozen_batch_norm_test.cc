// Which batch norms of a detector model.ssd.freeze_batchnorm freezes, for all types.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/config/effect_warnings.h"
#include "common/config/model_types.h"
#include "common/model/ssd/ssd_network.h"
#include "tests/testkit/ssd_test_config.h"

namespace pushpull {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The moving means of a detector's batch norms.
struct Norms {
  std::vector<std::string> frozen;
  std::vector<std::string> trained;
};

config::TrainEvalPipelineConfig ConfigOf(const std::string& type, const std::string& ssd) {
  config::TrainEvalPipelineConfig config = MakeSsdTestConfig(type, SsdTestSettings(type, 128));
  EXPECT_TRUE(google::protobuf::TextFormat::Parser().MergeFromString(
      ssd, config.mutable_model()->mutable_ssd()))
      << ssd;
  return config;
}

Norms NormsOf(const std::string& type, const std::string& ssd) {
  const NetworkSpec network = BuildSsd(ConfigOf(type, ssd).model().ssd());
  Norms norms;
  ForEachBatchNorm(network, [&](const op::BatchNorm& norm) {
    const VariableSpec& mean = network.variables[norm.moving_mean];
    EXPECT_EQ(mean.frozen, norm.frozen) << mean.name;
    EXPECT_EQ(network.variables[norm.moving_variance].frozen, norm.frozen) << mean.name;
    (norm.frozen ? norms.frozen : norms.trained).push_back(mean.name);
  });
  return norms;
}

bool IsOfTheBackbone(const std::string& name) {
  return absl::StartsWith(name, "FeatureExtractor/") && !absl::StrContains(name, "/fpn/") &&
         !absl::StrContains(name, "_1_Conv2d_") && !absl::StrContains(name, "_2_Conv2d_");
}

std::vector<std::string> WarningsOf(const std::string& type, const std::string& ssd) {
  std::vector<std::string> warnings;
  WarnAboutEffects(ConfigOf(type, ssd), /*sync=*/true, &warnings);
  return warnings;
}

constexpr char kFreeze[] = "freeze_batchnorm: true ";
constexpr char kOverride[] =
    "feature_extractor { override_base_feature_extractor_hyperparams: true } ";
// Batch norms in the predictor.
constexpr char kPredictorNorms[] =
    "box_predictor { convolutional_box_predictor { use_depthwise: true } } ";

TEST(FrozenBatchNormTest, Tensorflow1FreezesTheBackboneAlone) {
  for (const absl::string_view name : SsdTypeNames()) {
    const std::string type(name);
    SCOPED_TRACE(type);
    if (FindSsdType(type)->base != BaseHyperparams::kAny) continue;
    const bool has_levels = HasLevels(FindSsdType(type)->maps);
    const Norms norms = NormsOf(type, absl::StrCat(kFreeze, has_levels ? "" : kPredictorNorms));
    EXPECT_GT(norms.frozen.size(), 20u);
    EXPECT_GT(norms.trained.size(), 5u);
    for (const std::string& mean : norms.frozen) EXPECT_TRUE(IsOfTheBackbone(mean)) << mean;
    for (const std::string& mean : norms.trained) EXPECT_FALSE(IsOfTheBackbone(mean)) << mean;
    EXPECT_THAT(WarningsOf(type, kFreeze), Each(Not(HasSubstr("freeze_batchnorm"))));
  }
}

TEST(FrozenBatchNormTest, Tensorflow1FreezesNothingThatFollowsConvHyperparams) {
  for (const absl::string_view name : SsdTypeNames()) {
    const std::string type(name);
    SCOPED_TRACE(type);
    const BaseHyperparams base = FindSsdType(type)->base;
    if (base != BaseHyperparams::kAny && base != BaseHyperparams::kUser) continue;
    EXPECT_THAT(NormsOf(type, absl::StrCat(kFreeze, kOverride)).frozen, IsEmpty());
    EXPECT_THAT(
        WarningsOf(type, absl::StrCat(kFreeze, kOverride)),
        ElementsAre(HasSubstr(absl::StrCat("model.ssd.freeze_batchnorm has no effect with ", type,
                                           " and override_base_feature_extractor_hyperparams"))));
    EXPECT_THAT(WarningsOf(type, kOverride), IsEmpty());
  }
}

TEST(FrozenBatchNormTest, MobiledetAndMnasFpnTrainTheirBatchNormsInTensorflow1) {
  for (const char* type : {"ssd_mobiledet_cpu", "ssd_mobiledet_dsp", "ssd_mobiledet_edgetpu",
                           "ssd_mobiledet_gpu", "ssd_mobilenet_v2_mnasfpn"}) {
    SCOPED_TRACE(type);
    EXPECT_THAT(NormsOf(type, kFreeze).frozen, IsEmpty());
    EXPECT_THAT(WarningsOf(type, kFreeze),
                ElementsAre(HasSubstr(absl::StrCat("model.ssd.freeze_batchnorm has no effect with ",
                                                   type, ", as in"))));
  }
  // MnasFPN's batch norms are its own, so it has no conv_hyperparams to point to.
  EXPECT_THAT(WarningsOf("ssd_mobilenet_v2_mnasfpn", absl::StrCat(kFreeze, kOverride)),
              Contains(HasSubstr("model.ssd.freeze_batchnorm has no effect with "
                                 "ssd_mobilenet_v2_mnasfpn, as in")));
}

TEST(FrozenBatchNormTest, Tensorflow2FreezesAll) {
  int types = 0;
  for (const absl::string_view name : SsdTypeNames()) {
    const std::string type = absl::StrCat(name, "_keras");
    if (!FindSsdType(type).has_value()) continue;
    SCOPED_TRACE(type);
    ++types;
    for (const char* override : {"", kOverride}) {
      const Norms norms = NormsOf(type, absl::StrCat(kFreeze, override));
      EXPECT_THAT(norms.trained, IsEmpty());
      EXPECT_GT(norms.frozen.size(), 20u);
      EXPECT_THAT(WarningsOf(type, absl::StrCat(kFreeze, override)), IsEmpty());
    }
  }
  EXPECT_GT(types, 5);
}

TEST(FrozenBatchNormTest, ConvHyperparamsFreezeWhatFollowsThem) {
  const Norms norms = NormsOf(
      "ssd_mobilenet_v1",
      absl::StrCat(kFreeze,
                   "feature_extractor { conv_hyperparams { batch_norm { train: false } } }"));
  EXPECT_THAT(norms.trained, IsEmpty());
  EXPECT_GT(norms.frozen.size(), 30u);
}

}  // namespace
}  // namespace pushpull
