#include "ps_server/warm_start/restore.h"

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/classifier.h"
#include "common/model/model_layout.h"
#include "ps_server/warm_start/keras_names.h"
#include "ps_server/warm_start/torchvision_names.h"
#include "tests/testkit/ssd_test_config.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Tensors in memory. Element i of a tensor is the tensor's number + i / 1000.
class FakeSource final : public TensorSource {
 public:
  explicit FakeSource(std::map<std::string, std::vector<int64_t>> shapes) {
    for (const auto& [name, shape] : shapes) tensors_.push_back({name, shape, ""});
  }
  std::string describe() const override { return "fake"; }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  absl::Status Read(const SourceTensor& tensor, absl::Span<float> values) const override {
    const float first = Value(tensor.name, 0);
    for (size_t i = 0; i < values.size(); ++i) values[i] = first + Offset(i);
    if (last_value_.has_value()) values.back() = *last_value_;
    return absl::OkStatus();
  }
  std::optional<NetworkSpec> network() const override { return network_; }
  bool is_tensorflow() const override { return is_tensorflow_; }
  void set_last_value(float value) { last_value_ = value; }
  void set_network(NetworkSpec network) { network_ = std::move(network); }
  void set_is_tensorflow() { is_tensorflow_ = true; }
  float Value(const std::string& name, size_t i) const {
    return static_cast<float>(Find(name) - tensors_.data() + 1) + Offset(i);
  }

 private:
  static float Offset(size_t i) { return static_cast<float>(i) / 1000; }

  std::vector<SourceTensor> tensors_;
  std::optional<float> last_value_;  // of each tensor
  std::optional<NetworkSpec> network_;
  bool is_tensorflow_ = false;
};

struct Restored {
  Restored(const config::TrainEvalPipelineConfig& config, const FakeSource& source)
      : layout(BuildVariableLayout(config)), flat(layout.total_elements(), -1.0f) {
    auto result = RestoreForWarmStart(layout, config, source, absl::MakeSpan(flat));
    status = result.status();
    if (!result.ok()) return;
    report = *std::move(result);
    for (const RestoreRow& row : report.rows) rows[row.variable] = row;
  }
  float First(const std::string& variable) const {
    return flat[layout.offset(*layout.Find(variable))];
  }

  const VariableLayout layout;
  std::vector<float> flat;
  absl::Status status;
  RestoreReport report;
  std::map<std::string, RestoreRow> rows;
};

const char kStem[] = "FeatureExtractor/MobilenetV1/Conv2d_0/weights";
const char kHead[] = "BoxPredictor_0/ClassPredictor/biases";

TEST(RestoreTest, AnObjectCheckpointHasKerassNames) {
  const FakeSource source({{"Conv1/kernel", {3, 3, 3, 32}},
                           {"bn_Conv1/beta", {32}},
                           {"predictions/bias", {10}},
                           {"predictions/kernel", {1280, 10}}});
  config::TrainEvalPipelineConfig config;
  config.mutable_model()->mutable_classifier()->set_num_classes(10);
  config.mutable_model()->mutable_classifier()->mutable_feature_extractor()->set_type(
      "mobilenet_v2");
  auto* size = config.mutable_model()->mutable_classifier()->mutable_image_resizer();
  size->mutable_fixed_shape_resizer()->set_height(32);
  size->mutable_fixed_shape_resizer()->set_width(32);
  const Restored restored(config, source);
  ASSERT_TRUE(restored.status.ok()) << restored.status;
  EXPECT_EQ(restored.First("MobilenetV2/Conv/weights"), source.Value("Conv1/kernel", 0));
  EXPECT_EQ(restored.First("MobilenetV2/Conv/BatchNorm/beta"), source.Value("bn_Conv1/beta", 0));
  // Keras's dense layer has no spatial dimensions.
  EXPECT_EQ(restored.First("MobilenetV2/Logits/Conv2d_1c_1x1/weights"),
            source.Value("predictions/kernel", 0));
  EXPECT_EQ(restored.report.num_restored(), 4);
}

TEST(RestoreTest, TheTypeFullTakesThePredictorsToo) {
  const FakeSource source({{kStem, {3, 3, 3, 32}}, {kHead, {3 * 38}}});
  const Restored restored(
      MakeSsdTestConfig("ssd_mobilenet_v1", "", "fine_tune_checkpoint_type: 'full'"), source);
  ASSERT_TRUE(restored.status.ok()) << restored.status;
  EXPECT_EQ(restored.First(kHead), source.Value(kHead, 0));
  EXPECT_EQ(restored.report.num_restored(), 2);
}

TEST(RestoreTest, RestoresTheExtractorOfADetectionCheckpoint) {
  const FakeSource source(
      {{kStem, {3, 3, 3, 32}}, {kHead, {3 * 38}}, {"FeatureExtractor/other", {1}}});
  const Restored plain(
      MakeSsdTestConfig("ssd_mobilenet_v1", "", "fine_tune_checkpoint_type: 'detection'"), source);
  ASSERT_TRUE(plain.status.ok()) << plain.status;
  EXPECT_EQ(plain.First(kStem), source.Value(kStem, 0));
  EXPECT_EQ(plain.First(kHead), -1.0f);
  EXPECT_EQ(plain.rows.at(kHead).source_name, "");
  EXPECT_EQ(plain.report.num_restored(), 1);
  EXPECT_EQ(plain.rows.at("FeatureExtractor/MobilenetV1/Conv2d_1_pointwise/weights").reason,
            "not in the checkpoint");

  const Restored everything(
      MakeSsdTestConfig("ssd_mobilenet_v1", "",
                        "from_detection_checkpoint: true load_all_detection_checkpoint_vars: true"),
      source);
  EXPECT_EQ(everything.First(kHead), source.Value(kHead, 0));
}

TEST(RestoreTest, RestoresAClassificationCheckpointWithoutPrefix) {
  const FakeSource source({{"MobilenetV1/Conv2d_0/weights", {3, 3, 3, 32}}});
  const Restored restored(MakeSsdTestConfig("ssd_mobilenet_v1"), source);
  ASSERT_TRUE(restored.status.ok()) << restored.status;
  EXPECT_TRUE(restored.rows.at(kStem).restored);
  EXPECT_EQ(restored.rows.at(kStem).source_name, "MobilenetV1/Conv2d_0/weights");
}

TEST(RestoreTest, ReportsOtherShapes) {
  const FakeSource source(
      {{kStem, {3, 3, 3, 16}}, {"FeatureExtractor/MobilenetV1/Conv2d_0/BatchNorm/beta", {32}}});
  const Restored restored(
      MakeSsdTestConfig("ssd_mobilenet_v1", "", "fine_tune_checkpoint_type: 'detection'"), source);
  ASSERT_TRUE(restored.status.ok()) << restored.status;
  EXPECT_EQ(restored.rows.at(kStem).reason,
            "its shape there is [3, 3, 3, 16], expected [3, 3, 3, 32]");
  EXPECT_EQ(restored.First(kStem), -1.0f);
  const std::string text = restored.report.ToString();
  EXPECT_THAT(text, HasSubstr("from fake: 1 of "));
  EXPECT_THAT(text, HasSubstr("FeatureExtractor/MobilenetV1: 1"));
  EXPECT_THAT(text, HasSubstr("expected [3, 3, 3, 32]"));
  EXPECT_THAT(text, HasSubstr("BoxPredictor_0/ClassPredictor: 2"));
}

TEST(RestoreTest, FailsIfNoTensorFits) {
  const FakeSource source({{"Conv2d_0/weights", {1}}});
  const Restored restored(MakeSsdTestConfig("ssd_mobilenet_v1"), source);
  EXPECT_EQ(restored.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(restored.status.message()),
              HasSubstr("searched for MobilenetV1/Conv2d_0/weights"));
  EXPECT_THAT(std::string(restored.status.message()), HasSubstr("has Conv2d_0/weights"));
}

TEST(RestoreTest, SaysWhyNoTensorFits) {
  const FakeSource source({{"MobilenetV1/Conv2d_1_pointwise/weights", {1, 1, 32, 5}}});
  const Restored restored(MakeSsdTestConfig("ssd_mobilenet_v1"), source);
  EXPECT_EQ(restored.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(restored.status.message()),
      HasSubstr(
          "searched for MobilenetV1/Conv2d_1_pointwise/weights (its shape there is [1, 1, 32, 5]"));
}

TEST(RestoreTest, RefusesValuesThatAreNotFinite) {
  FakeSource source({{kStem, {3, 3, 3, 32}}});
  source.set_last_value(std::nanf(""));
  auto config = MakeSsdTestConfig("ssd_mobilenet_v1");
  config.mutable_train_config()->set_fine_tune_checkpoint_type("detection");
  const Restored restored(config, source);
  EXPECT_EQ(restored.status.code(), absl::StatusCode::kDataLoss) << restored.status;
  EXPECT_THAT(std::string(restored.status.message()),
              AllOf(HasSubstr(kStem), HasSubstr("not finite")));
}

// The shapes of the tensors of torchvision's state dict of a network for ten classes.
std::map<std::string, std::vector<int64_t>> ReadShapes(const std::string& network) {
  const std::string path =
      absl::StrCat(PUSHPULL_SOURCE_DIR, "/tests/golden/torchvision/", network, ".txt");
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::map<std::string, std::vector<int64_t>> shapes;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    for (int64_t size; words >> size;) shapes[name].push_back(size);
  }
  return shapes;
}

FakeSource ReadStateDict(const std::string& network) { return FakeSource(ReadShapes(network)); }

config::TrainEvalPipelineConfig ClassifierOfTen(const std::string& type, int side = 224) {
  config::TrainEvalPipelineConfig config;
  config::Classifier* const classifier = config.mutable_model()->mutable_classifier();
  classifier->set_num_classes(10);
  auto* const size = classifier->mutable_image_resizer()->mutable_fixed_shape_resizer();
  size->set_height(side);
  size->set_width(side);
  classifier->mutable_feature_extractor()->set_type(type);
  return config;
}

// The shapes of the variables of the classifier, by TensorFlow slim's names.
std::map<std::string, std::vector<int64_t>> SlimShapes(const std::string& type, int side) {
  std::map<std::string, std::vector<int64_t>> tensors;
  const VariableLayout layout = BuildVariableLayout(ClassifierOfTen(type, side));
  for (const VariableSpec& variable : layout.variables()) tensors[variable.name] = variable.shape;
  return tensors;
}

// The correction assumes that the statistics began at mean 0 and variance 1.
TEST(RestoreTest, RefusesStatisticsThatTheEvaluatorWouldCorrect) {
  const FakeSource source({{"MobilenetV2/Conv/BatchNorm/moving_mean", {32}}});
  config::TrainEvalPipelineConfig config = ClassifierOfTen("mobilenet_v2");
  config::BatchNorm& norm = *config.mutable_model()
                                 ->mutable_classifier()
                                 ->mutable_feature_extractor()
                                 ->mutable_conv_hyperparams()
                                 ->mutable_batch_norm();
  EXPECT_TRUE(Restored(config, source).status.ok()) << Restored(config, source).status;
  norm.set_bias_corrected_moving_statistics(true);
  const absl::Status refused = Restored(config, source).status;
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("MobilenetV2/Conv/BatchNorm/moving_mean"),
                    HasSubstr("bias_corrected_moving_statistics")));
}

void ExpectEachTensorRestoresOneVariable(const config::TrainEvalPipelineConfig& config,
                                         const FakeSource& source) {
  const Restored restored(config, source);
  ASSERT_TRUE(restored.status.ok()) << restored.status;
  std::set<std::string> used;
  for (const auto& [variable, row] : restored.rows) {
    EXPECT_TRUE(row.restored) << variable << " from " << row.source_name << ": " << row.reason;
    EXPECT_TRUE(used.insert(row.source_name).second) << row.source_name;
  }
  EXPECT_EQ(used.size(), source.tensors().size());
}

TEST(RestoreTest, RestoresAllVariablesFromAllTensorsOfTorchvision) {
  const std::pair<std::string, std::string> networks[] = {
      {"mobilenet_v2", "mobilenet_v2"},
      {"mobilenet_v3_large", "mobilenet_v3_large"},
      {"mobilenet_v3_small", "mobilenet_v3_small"},
      {"resnet_v1_50", "resnet50"},
      {"resnet_v1_101", "resnet101"}};
  for (const auto& [type, file] : networks) {
    SCOPED_TRACE(type);
    ExpectEachTensorRestoresOneVariable(ClassifierOfTen(type), ReadStateDict(file));
  }
  // Made for images of 32 x 32 pixels, because VGG's first dense layer has 103 million weights for
  // images of 224 x 224.
  std::map<std::string, std::vector<int64_t>> shapes = ReadShapes("vgg16");
  shapes["classifier.0.weight"].at(1) /= 7 * 7;
  ExpectEachTensorRestoresOneVariable(ClassifierOfTen("vgg_16", 32), FakeSource(shapes));
}

TEST(RestoreTest, TorchvisionNamesOfSomeVariables) {
  const FakeSource v2 = ReadStateDict("mobilenet_v2");
  EXPECT_EQ(TorchvisionName("MobilenetV2/expanded_conv/depthwise/depthwise_weights", v2),
            "features.1.conv.0.0.weight");
  EXPECT_EQ(TorchvisionName("MobilenetV2/expanded_conv_3/expand/BatchNorm/moving_mean", v2),
            "features.4.conv.0.1.running_mean");
  EXPECT_EQ(TorchvisionName("MobilenetV2/layer_19_1_Conv2d_2_1x1_256/weights", v2), std::nullopt);
  EXPECT_EQ(TorchvisionName("MobilenetV2/expanded_conv_17/expand/weights", v2), std::nullopt);
  EXPECT_EQ(TorchvisionName("resnet_v1_50/conv1/weights", v2), std::nullopt);
  const FakeSource v3 = ReadStateDict("mobilenet_v3_small");
  EXPECT_EQ(TorchvisionName("MobilenetV3/expanded_conv/squeeze_excite/Conv_1/biases", v3),
            "features.1.block.1.fc2.bias");
  EXPECT_EQ(TorchvisionName("MobilenetV3/expanded_conv_1/project/BatchNorm/gamma", v3),
            "features.2.block.2.1.weight");
  EXPECT_EQ(TorchvisionName("MobilenetV2/Conv/weights", v3), std::nullopt);
  const FakeSource resnet = ReadStateDict("resnet50");
  EXPECT_EQ(
      TorchvisionName("resnet_v1_50/block3/unit_6/bottleneck_v1/conv2/BatchNorm/beta", resnet),
      "layer3.5.bn2.bias");
  EXPECT_EQ(TorchvisionName("resnet_v1_50/block2/unit_1/bottleneck_v1/shortcut/weights", resnet),
            "layer2.0.downsample.0.weight");
  const FakeSource vgg = ReadStateDict("vgg16");
  EXPECT_EQ(TorchvisionName("vgg_16/conv1/conv1_2/weights", vgg), "features.2.weight");
  EXPECT_EQ(TorchvisionName("vgg_16/conv3/conv3_3/biases", vgg), "features.14.bias");
  EXPECT_EQ(TorchvisionName("vgg_16/conv5/conv5_1/weights", vgg), "features.24.weight");
  EXPECT_EQ(TorchvisionName("vgg_16/fc7/biases", vgg), "classifier.3.bias");
  EXPECT_EQ(TorchvisionName("vgg_16/conv3/conv3_3/BatchNorm/gamma", vgg), std::nullopt);
  EXPECT_EQ(TorchvisionName("resnet_v1_50/conv1/weights", vgg), std::nullopt);
  const FakeSource vgg11 = ReadStateDict("vgg11");
  EXPECT_EQ(TorchvisionName("vgg_a/conv2/conv2_1/weights", vgg11), "features.3.weight");
  EXPECT_EQ(TorchvisionName("vgg_a/conv5/conv5_2/biases", vgg11), "features.18.bias");
}

// Each of these has a weight of the name features.0.weight.
TEST(RestoreTest, OtherNetworksOfTorchvisionAreNotTakenForVgg) {
  const std::vector<int64_t> kernel = {64, 3, 3, 3};
  EXPECT_TRUE(IsTorchvision(
      FakeSource({{"features.0.weight", kernel}, {"features.3.weight", {128, 64, 3, 3}}})));
  EXPECT_FALSE(IsTorchvision(
      FakeSource({{"features.0.weight", {64, 3, 11, 11}}, {"features.3.weight", {192, 64, 5, 5}}})))
      << "AlexNet";
  EXPECT_FALSE(IsTorchvision(
      FakeSource({{"features.0.weight", kernel}, {"features.3.squeeze.weight", {16, 64, 1, 1}}})))
      << "SqueezeNet";
  EXPECT_FALSE(IsTorchvision(FakeSource({{"features.0.weight", kernel},
                                         {"features.1.weight", {64}},
                                         {"features.3.weight", {64, 64, 3, 3}}})))
      << "VGG with batch norm";
}

TEST(RestoreTest, TransposesTorchvisionWeights) {
  const FakeSource source({{"features.0.0.weight", {32, 3, 3, 3}},
                           {"features.1.conv.0.0.weight", {32, 1, 3, 3}},
                           {"features.18.1.running_var", {1280}},
                           {"classifier.1.weight", {37, 1280}}});
  const Restored restored(MakeSsdTestConfig("ssd_mobilenet_v2"), source);
  ASSERT_TRUE(restored.status.ok()) << restored.status;
  EXPECT_EQ(restored.report.num_restored(), 3);
  const auto at = [&restored](const std::string& variable, int64_t i) {
    return restored.flat[restored.layout.offset(*restored.layout.Find(variable)) + i];
  };
  const std::string stem = "FeatureExtractor/MobilenetV2/Conv/weights";
  // Element (1, 2, 2, 5) of [y][x][in][out] is stored as [out][in][y][x] there.
  EXPECT_EQ(at(stem, ((1 * 3 + 2) * 3 + 2) * 32 + 5),
            source.Value("features.0.0.weight", ((5 * 3 + 2) * 3 + 1) * 3 + 2));
  const std::string depthwise =
      "FeatureExtractor/MobilenetV2/expanded_conv/depthwise/depthwise_weights";
  EXPECT_EQ(at(depthwise, (2 * 3 + 0) * 32 + 7),
            source.Value("features.1.conv.0.0.weight", (7 * 3 + 2) * 3 + 0));
}

TEST(RestoreTest, AdaptsTheFirstLayerOfTorchvisionToOurPixels) {
  const FakeSource source = ReadStateDict("mobilenet_v2");
  const Restored restored(ClassifierOfTen("mobilenet_v2"), source);
  ASSERT_TRUE(restored.status.ok()) << restored.status;
  const auto at = [&restored](const std::string& variable, int64_t i) {
    return restored.flat[restored.layout.offset(*restored.layout.Find(variable)) + i];
  };
  // Element (1, 2, green, 5) of [y][x][in][out].
  EXPECT_FLOAT_EQ(at("MobilenetV2/Conv/weights", ((1 * 3 + 2) * 3 + 1) * 32 + 5),
                  source.Value("features.0.0.weight", ((5 * 3 + 1) * 3 + 1) * 3 + 2) * 0.5 / 0.224);
  EXPECT_NE(at("MobilenetV2/Conv/BatchNorm/moving_mean", 5),
            source.Value("features.0.1.running_mean", 5));
  EXPECT_EQ(at("MobilenetV2/Conv_1/BatchNorm/moving_mean", 5),
            source.Value("features.18.1.running_mean", 5));
  EXPECT_THAT(restored.report.ToString(),
              AllOf(HasSubstr("note: torchvision's weights expect pixels"),
                    HasSubstr("note: torchvision's batch norms have the epsilon 1e-05, these have "
                              "0.001")));
}

TEST(RestoreTest, VggReadsItsMapPixelByPixelAndHasBiasesForTheAdaptedPixels) {
  // Images of 64 pixels: the last map has 2 x 2 pixels of 512 channels.
  const FakeSource source({{"features.0.weight", {64, 3, 3, 3}},
                           {"features.0.bias", {64}},
                           {"features.3.weight", {128, 64, 3, 3}},
                           {"classifier.0.weight", {4096, 512 * 2 * 2}}});
  const Restored restored(ClassifierOfTen("vgg_a", 64), source);
  ASSERT_TRUE(restored.status.ok()) << restored.status;
  EXPECT_EQ(restored.report.num_restored(), 4);
  const auto at = [&restored](const std::string& variable, int64_t i) {
    return restored.flat[restored.layout.offset(*restored.layout.Find(variable)) + i];
  };
  // Element (1, 0, 300, 5) of [y][x][in][out] is stored as [out][in][y][x] there.
  EXPECT_EQ(at("vgg_a/fc6/weights", ((1 * 2 + 0) * 512 + 300) * 4096 + 5),
            source.Value("classifier.0.weight", ((5 * 512 + 300) * 2 + 1) * 2 + 0));
  const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
  double bias = source.Value("features.0.bias", 5);
  for (int i = 0; i < 3 * 9; ++i) {
    bias += source.Value("features.0.weight", 5 * 27 + i) * (0.5 - mean[i / 9]) / deviation[i / 9];
  }
  EXPECT_FLOAT_EQ(at("vgg_a/conv1/conv1_1/biases", 5), bias);
  EXPECT_FLOAT_EQ(at("vgg_a/conv1/conv1_1/weights", ((1 * 3 + 2) * 3 + 1) * 64 + 5),
                  source.Value("features.0.weight", ((5 * 3 + 1) * 3 + 1) * 3 + 2) * 0.5 / 0.224);
  EXPECT_THAT(restored.report.ToString(), HasSubstr("the first convolution and its biases were"));
}

// The weights of slim and of the Object Detection API; those of their MobileNets expect our pixels.
TEST(RestoreTest, AdaptsTheFirstLayerOfTensorFlowsVggAndResnetToOurPixels) {
  const std::pair<std::string, std::string> stems[] = {
      {"vgg_a", "vgg_a/conv1/conv1_1/weights"},
      {"resnet_v1_50", "resnet_v1_50/conv1/weights"},
      {"mobilenet_v2", "MobilenetV2/Conv/weights"}};
  for (const auto& [type, stem] : stems) {
    SCOPED_TRACE(type);
    FakeSource source(SlimShapes(type, 64));
    const Restored own(ClassifierOfTen(type, 64), source);
    EXPECT_EQ(own.First(stem), source.Value(stem, 0)) << "not TensorFlow's";
    source.set_is_tensorflow();
    const Restored restored(ClassifierOfTen(type, 64), source);
    const bool adapted = type != "mobilenet_v2";
    EXPECT_FLOAT_EQ(restored.First(stem), source.Value(stem, 0) * (adapted ? 127.5f : 1.0f));
    EXPECT_EQ(restored.report.notes.size(), adapted ? 1 : 0) << restored.report.ToString();
  }
  FakeSource source(SlimShapes("vgg_a", 64));
  source.set_is_tensorflow();
  double bias = source.Value("vgg_a/conv1/conv1_1/biases", 0);
  const double mean[] = {123.68, 116.779, 103.939};
  for (int tap = 0; tap < 3 * 9; ++tap) {
    bias += source.Value("vgg_a/conv1/conv1_1/weights", tap * 64) * (127.5 - mean[tap % 3]);
  }
  EXPECT_FLOAT_EQ(
      Restored(ClassifierOfTen("vgg_a", 64), source).First("vgg_a/conv1/conv1_1/biases"), bias);
}

// torchvision's first dense layer reads a map of 7 x 7 pixels.
TEST(RestoreTest, VggOfOtherImagesDoesNotTakeTheFirstDenseLayer) {
  const FakeSource vgg11({{"features.0.weight", {64, 3, 3, 3}},
                          {"features.3.weight", {128, 64, 3, 3}},
                          {"classifier.0.weight", {4096, 25088}},
                          {"classifier.6.weight", {10, 4096}}});
  const Restored restored(ClassifierOfTen("vgg_a", 64), vgg11);
  ASSERT_TRUE(restored.status.ok()) << restored.status;
  EXPECT_EQ(restored.rows.at("vgg_a/fc6/weights").reason,
            "its shape there is [4096, 25088], expected [4096, 2048]");
  EXPECT_TRUE(restored.rows.at("vgg_a/fc8/weights").restored);
}

TEST(RestoreTest, OtherStridesThanThoseOfTheWeightsAreNoted) {
  const config::TrainEvalPipelineConfig classifier = ClassifierOfTen("resnet_v1_50");
  std::map<std::string, std::vector<int64_t>> shapes;
  const VariableLayout layout = BuildVariableLayout(classifier);
  for (const VariableSpec& variable : layout.variables()) {
    shapes[variable.name] = variable.shape;
  }
  FakeSource own(shapes);
  own.set_network(BuildNetworkSpec(classifier.model()));
  for (const FakeSource& source : {own, ReadStateDict("resnet50")}) {
    SCOPED_TRACE(source.network().has_value());
    const Restored same(classifier, source);
    EXPECT_THAT(same.report.ToString(), Not(HasSubstr("other strides")));
    for (const std::string type : {"ssd_resnet50_v1_fpn", "ssd_resnet50_v1_fpn_keras"}) {
      const Restored detector(MakeSsdTestConfig(type, SsdTestSettings(type, 128)), source);
      ASSERT_TRUE(detector.status.ok()) << detector.status;
      EXPECT_THAT(detector.report.ToString(),
                  HasSubstr("note: the network of these weights has other strides in "));
    }
  }
}

void ExpectTooDeep(const config::TrainEvalPipelineConfig& config, const FakeSource& source,
                   const std::string& tensor, const std::string& advice) {
  const absl::Status refused = Restored(config, source).status;
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("it has " + tensor + ","), HasSubstr(advice)));
}

// Copies the tensors of a unit of torchvision's ResNet.
void CopyUnit(const std::string& from, const std::string& to,
              std::map<std::string, std::vector<int64_t>>* shapes) {
  const auto before = *shapes;
  for (const auto& [name, shape] : before) {
    if (name.rfind(from, 0) == 0) (*shapes)[to + name.substr(from.size())] = shape;
  }
}

// All variables of the shallower network would be restored.
TEST(RestoreTest, RefusesTheWeightsOfADeeperNetwork) {
  const FakeSource resnet101 = ReadStateDict("resnet101");
  ExpectTooDeep(ClassifierOfTen("resnet_v1_50"), resnet101, "layer3.6.conv1.weight",
                "Set the type to \"resnet_v1_101\"");
  const std::string detector = "ssd_resnet50_v1_fpn_keras";
  ExpectTooDeep(MakeSsdTestConfig(detector, SsdTestSettings(detector, 128)), resnet101,
                "layer3.6.conv1.weight", "Set the type to \"ssd_resnet101_v1_fpn_keras\"");
  std::map<std::string, std::vector<int64_t>> resnet152 = ReadShapes("resnet101");
  for (int unit = 4; unit < 8; ++unit) {
    CopyUnit("layer2.3.", absl::StrCat("layer2.", unit, "."), &resnet152);
  }
  for (int unit = 23; unit < 36; ++unit) {
    CopyUnit("layer3.5.", absl::StrCat("layer3.", unit, "."), &resnet152);
  }
  ExpectTooDeep(ClassifierOfTen("resnet_v1_101"), FakeSource(resnet152), "layer2.4.conv1.weight",
                "Set the type to \"resnet_v1_152\"");
  ExpectTooDeep(ClassifierOfTen("vgg_a", 32), ReadStateDict("vgg16"), "features.2.weight",
                "Set the type to \"vgg_16\"");
  ExpectTooDeep(ClassifierOfTen("mobilenet_v3_small"), ReadStateDict("mobilenet_v3_large"),
                "features.12.block.0.0.weight", "Set the type to \"mobilenet_v3_large\"");
}

TEST(RestoreTest, RefusesADeeperNetworkByOtherNames) {
  std::map<std::string, std::vector<int64_t>> keras = {{"conv1_conv/kernel", {7, 7, 3, 64}}};
  for (const auto& [name, shape] : SlimShapes("resnet_v1_101", 64)) {
    const auto translated = KerasName(name, FakeSource(keras));
    if (translated.has_value()) keras[*translated] = shape;
  }
  ExpectTooDeep(ClassifierOfTen("resnet_v1_50"), FakeSource(keras), "conv4_block7_1_conv/kernel",
                "Set the type to \"resnet_v1_101\"");
  // TensorFlow slim's names. No known network has this unit in the scope resnet_v1_50.
  std::map<std::string, std::vector<int64_t>> slim = SlimShapes("resnet_v1_50", 224);
  const std::string unit = "resnet_v1_50/block2/unit_5/bottleneck_v1/conv1/weights";
  slim[unit] = {1, 1, 512, 128};
  ExpectTooDeep(ClassifierOfTen("resnet_v1_50"), FakeSource(slim), unit,
                "the missing units. Take the weights");
  slim.erase(unit);
  // Extra tensors that are no units: of an optimizer, of a head and of another network.
  slim["resnet_v1_50/block2/unit_4/bottleneck_v1/conv1/weights/Momentum"] = {1, 1, 512, 128};
  slim["resnet_v1_50/logits_2/weights"] = {1, 1, 2048, 7};
  slim["resnet_v1_101/block2/unit_5/bottleneck_v1/conv1/weights"] = {1, 1, 512, 128};
  const Restored restored(ClassifierOfTen("resnet_v1_50"), FakeSource(slim));
  ASSERT_TRUE(restored.status.ok()) << restored.status;
  EXPECT_EQ(restored.report.num_restored(), restored.layout.num_variables());
}

// The weights of a dense layer are those of a 1x1 convolution, and of no other.
TEST(RestoreTest, ADenseLayerIsNoConvolutionOfThreeByThree) {
  const FakeSource source({{"features.0.0.weight", {32, 3}},
                           {"features.18.1.running_var", {1280}},
                           {"features.18.0.weight", {1280, 320}},
                           {"classifier.1.weight", {10, 1280}}});
  const Restored restored(ClassifierOfTen("mobilenet_v2"), source);
  ASSERT_TRUE(restored.status.ok()) << restored.status;
  const RestoreRow& stem = restored.rows.at("MobilenetV2/Conv/weights");
  EXPECT_FALSE(stem.restored);
  EXPECT_EQ(stem.reason, "its shape there is [32, 3], expected [32, 3, 3, 3]");
  EXPECT_EQ(restored.First("MobilenetV2/Conv/weights"), -1.0f);
  EXPECT_TRUE(restored.rows.at("MobilenetV2/Logits/Conv2d_1c_1x1/weights").restored);
}

}  // namespace
}  // namespace pushpull
