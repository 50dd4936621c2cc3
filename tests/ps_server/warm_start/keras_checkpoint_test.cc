// What TensorFlow and Keras really write (tests/reference/keras_checkpoints_tf.py).
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/model_layout.h"
#include "ps_server/warm_start/keras_names.h"
#include "ps_server/warm_start/restore.h"
#include "ps_server/warm_start/tensor_source.h"
#include "tests/ps_server/warm_start/read_tensors.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/ssd_test_config.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

// The tensors of a checkpoint of one of Keras's networks for ten classes, as
// tests/reference/keras_checkpoints_tf.py lists them. All elements are 0.
class KerasSource final : public TensorSource {
 public:
  explicit KerasSource(const std::string& network) {
    const std::string path =
        absl::StrCat(PUSHPULL_SOURCE_DIR, "/tests/golden/keras/", network, ".txt");
    std::ifstream file(path);
    EXPECT_TRUE(file) << path;
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      SourceTensor& tensor = tensors_.emplace_back();
      words >> tensor.name;
      for (int64_t size; words >> size;) tensor.shape.push_back(size);
    }
  }
  std::string describe() const override { return "Keras"; }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  absl::Status Read(const SourceTensor&, absl::Span<float>) const override {
    return absl::OkStatus();
  }

 private:
  std::vector<SourceTensor> tensors_;
};

std::vector<RestoreRow> Restore(const config::TrainEvalPipelineConfig& config,
                                const KerasSource& source) {
  const VariableLayout layout = BuildVariableLayout(config);
  std::vector<float> flat(layout.total_elements());
  const auto report = RestoreForWarmStart(layout, config, source, absl::MakeSpan(flat));
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? report->rows : std::vector<RestoreRow>();
}

TEST(KerasNetworksTest, ClassifiersTakeAllVariablesFromAllTensors) {
  const std::map<std::string, std::string> types = {
      {"mobilenet_v2", "mobilenet_v2"},
      {"keras3_mobilenet_v2", "mobilenet_v2"},
      {"mobilenet_v3_large", "mobilenet_v3_large"},
      {"mobilenet_v3_small", "mobilenet_v3_small"},
      {"keras3_mobilenet_v3_small", "mobilenet_v3_small"}};
  for (const auto& [network, type] : types) {
    SCOPED_TRACE(network);
    config::TrainEvalPipelineConfig config;
    config::Classifier* const classifier = config.mutable_model()->mutable_classifier();
    classifier->set_num_classes(10);
    classifier->mutable_image_resizer()->mutable_fixed_shape_resizer();
    classifier->mutable_feature_extractor()->set_type(type);
    const KerasSource source(network);
    std::set<std::string> used;
    for (const RestoreRow& row : Restore(config, source)) {
      EXPECT_TRUE(row.restored) << row.variable << " from " << row.source_name << row.reason;
      EXPECT_TRUE(used.insert(row.source_name).second) << row.source_name;
    }
    EXPECT_EQ(used.size(), source.tensors().size());
  }
}

// A classifier's checkpoint has no layers between the backbone and the predictors.
TEST(KerasNetworksTest, DetectorsTakeTheBackboneOfAClassifier) {
  const std::map<std::string, std::string> types = {{"mobilenet", "ssd_mobilenet_v1"},
                                                    {"mobilenet_v2", "ssd_mobilenet_v2"}};
  for (const auto& [network, type] : types) {
    SCOPED_TRACE(network);
    const KerasSource source(network);
    std::set<std::string> used;
    for (const RestoreRow& row : Restore(MakeSsdTestConfig(type), source)) {
      const bool backbone = absl::StartsWith(row.variable, "FeatureExtractor/") &&
                            !absl::StrContains(row.variable, "/layer_") &&
                            !absl::StrContains(row.variable, "_Conv2d_");
      EXPECT_EQ(row.restored, backbone) << row.variable << " from " << row.source_name;
      if (row.restored) used.insert(row.source_name);
    }
    // All but the class scores, which are two tensors.
    EXPECT_EQ(used.size(), source.tensors().size() - 2);
  }
}

TEST(KerasNetworksTest, NamesOfSomeVariables) {
  const KerasSource v2("mobilenet_v2");
  EXPECT_EQ(KerasName("MobilenetV2/expanded_conv_3/project/BatchNorm/gamma", v2),
            "block_3_project_BN/gamma");
  EXPECT_EQ(KerasName("MobilenetV2/expanded_conv/depthwise/depthwise_weights", v2),
            "expanded_conv_depthwise/depthwise_kernel");
  EXPECT_EQ(KerasName("MobilenetV2/expanded_conv/depthwise/depthwise_weights",
                      KerasSource("keras3_mobilenet_v2")),
            "expanded_conv_depthwise/kernel");
  const KerasSource v3("mobilenet_v3_small");
  EXPECT_EQ(KerasName("MobilenetV3/expanded_conv/squeeze_excite/Conv_1/biases", v3),
            "expanded_conv/squeeze_excite/Conv_1/bias");
  EXPECT_EQ(KerasName("MobilenetV3/Logits/Conv2d_1c_1x1/weights", v3), "Logits/kernel");
  EXPECT_EQ(KerasName("MobilenetV3/expanded_conv_1/depthwise/BatchNorm/gamma",
                      KerasSource("keras3_mobilenet_v3_small")),
            "expanded_conv_1_depthwise_bn/gamma");
  EXPECT_EQ(KerasName("resnet_v1_50/block3/unit_6/bottleneck_v1/conv2/BatchNorm/beta", v3),
            "conv4_block6_2_bn/beta");
  EXPECT_EQ(KerasName("OtherNetwork/Conv/weights", v3), std::nullopt);
}

constexpr char kObjectsPrefix[] = PUSHPULL_SOURCE_DIR "/tests/golden/keras/objects-1";
constexpr char kDataSuffix[] = ".data-00000-of-00001";

// A checkpoint that tf.train.Checkpoint wrote (tests/reference/keras_checkpoints_tf.py), in memory
// so that tests can damage it.
class ObjectCheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    PosixFileSystem disk;
    data_ = *ReadWholeFile(disk, absl::StrCat(kObjectsPrefix, kDataSuffix));
    ASSERT_TRUE(files_.MakeDirectory("/b").ok());
    ASSERT_TRUE(WriteFileAtomically(files_, "/b/c.index",
                                    *ReadWholeFile(disk, absl::StrCat(kObjectsPrefix, ".index")))
                    .ok());
  }

  // Opens the checkpoint with this data file and reads every tensor.
  absl::Status ReadAll(const std::string& data) {
    if (!WriteFileAtomically(files_, absl::StrCat("/b/c", kDataSuffix), data).ok()) {
      return absl::InternalError("the test cannot write its file");
    }
    return ReadAllTensors(files_, "/b/c");
  }

  MemoryFileSystem files_;
  std::string data_;
};

TEST_F(ObjectCheckpointTest, NamesTheVariablesOfTheModelAndOfTheOptimizer) {
  PosixFileSystem disk;
  const auto source = OpenTensorSource(disk, kObjectsPrefix);
  ASSERT_TRUE(source.ok()) << source.status();
  const char* const model[] = {"Conv1/kernel",
                               "bn_Conv1/beta",
                               "bn_Conv1/gamma",
                               "bn_Conv1/moving_mean",
                               "bn_Conv1/moving_variance",
                               "expanded_conv_depthwise/bias",
                               "expanded_conv_depthwise/depthwise_kernel"};
  for (int number = 0; number < 7; ++number) {
    const SourceTensor* const tensor = (*source)->Find(model[number]);
    ASSERT_NE(tensor, nullptr) << model[number];
    std::vector<float> values(tensor->num_elements());
    ASSERT_TRUE((*source)->Read(*tensor, absl::MakeSpan(values)).ok()) << tensor->name;
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i], static_cast<float>(number) + static_cast<float>(i) / 8) << tensor->name;
    }
  }
  EXPECT_EQ((*source)->Find("Conv1/kernel")->shape, (std::vector<int64_t>{3, 3, 3, 2}));
  // The optimizer's variables do not hide those of the model.
  EXPECT_NE((*source)->Find("SGD/Conv1/kernel/momentum"), nullptr);
  EXPECT_EQ((*source)->Find("SGD/iter")->unusable, "dtype 9 is not float32");
}

TEST_F(ObjectCheckpointTest, DetectsEveryTruncation) {
  ASSERT_TRUE(ReadAll(data_).ok());
  for (size_t size = 0; size < data_.size(); ++size) {
    EXPECT_EQ(ReadAll(data_.substr(0, size)).code(), absl::StatusCode::kDataLoss) << size;
  }
}

TEST_F(ObjectCheckpointTest, DetectsEveryFlippedByteThatIsRead) {
  int harmless = 0;
  for (size_t at = 0; at < data_.size(); ++at) {
    std::string damaged = data_;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    const absl::Status status = ReadAll(damaged);
    if (status.ok()) {
      ++harmless;
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("damaged")) << at;
    }
  }
  EXPECT_EQ(harmless, 2 * 8) << "only the optimizer's and the checkpoint's int64 are not read";
}

}  // namespace
}  // namespace pushpull
