#include "worker/export/model_file.h"

#include <cmath>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/checkpoint/safetensors.h"
#include "common/model/model_layout.h"
#include "protos/onnx.pb.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/worker/export/export_testing.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

class ModelFileTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(files_.MakeDirectory("/run").ok());
    Publish({});
    Publish({.step = 9, .updates = 9, .seed = 2, .ema_seed = 3});
  }

  void Publish(const TestCheckpoint& checkpoint) {
    PublishTestCheckpoint(files_, "/run", BuildVariableLayout(config_), checkpoint);
  }
  absl::StatusOr<InferenceModel> Load(const InferenceModelOptions& options) {
    return LoadInferenceModel(files_, "/run", config_, options);
  }
  std::string ErrorOf(const InferenceModelOptions& options) {
    const absl::Status status = Load(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  }

  MemoryFileSystem files_;
  config::TrainEvalPipelineConfig config_ = ClassifierConfig();
};

TEST_F(ModelFileTest, LoadsTheRequestedStepAndKind) {
  const VariableLayout layout = BuildVariableLayout(config_);
  const auto newest = Load({});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->step, 9);
  EXPECT_FALSE(newest->moving_averages);
  EXPECT_EQ(newest->values[5], RandomValues(layout, 2)[5]);
  const auto older = Load({.step = 7});
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_EQ(older->values[5], RandomValues(layout, 1)[5]);
  const auto ema = Load({.use_moving_averages = true});
  ASSERT_TRUE(ema.ok()) << ema.status();
  EXPECT_TRUE(ema->moving_averages);
  EXPECT_EQ(ema->values[5], RandomValues(layout, 3)[5]);
  // Moving statistics have no moving average.
  const int64_t mean = layout.offset(*layout.Find("MobilenetV2/Conv/BatchNorm/moving_mean"));
  EXPECT_EQ(ema->values[mean], RandomValues(layout, 2)[mean]);
}

TEST_F(ModelFileTest, NamesTheReasonIfNothingCanBeLoaded) {
  const absl::Status step = Load({.step = 8}).status();
  EXPECT_EQ(step.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(step.message()), HasSubstr("those of steps 7, 9"));
  EXPECT_THAT(ErrorOf({.step = 7, .use_moving_averages = true}), HasSubstr("no moving averages"));
  config_ = ClassifierConfig("num_classes: 6");
  EXPECT_THAT(ErrorOf({}), HasSubstr("MobilenetV2/Logits/Conv2d_1c_1x1/weights"));
  // A detector's backbone has the classifier's names below one more scope.
  config_ = DetectorConfig("ssd_mobilenet_v2");
  const std::string other = ErrorOf({});
  EXPECT_THAT(other, HasSubstr("lacks variable FeatureExtractor/MobilenetV2/Conv/weights of the"));
  EXPECT_THAT(other, HasSubstr("nearest names there are MobilenetV2/Conv/weights"));
  config_ = ClassifierConfig("hidden_units: 4");
  EXPECT_THAT(ErrorOf({}),
              HasSubstr("lacks variable MobilenetV2/Logits/Conv2d_1b_1x1/weights of the model that "
                        "pipeline.config describes; did you mean "
                        "\"MobilenetV2/Logits/Conv2d_1c_1x1/weights\"?"));
}

TEST_F(ModelFileTest, SafetensorsRoundTripBitForBit) {
  const auto model = Load({.use_moving_averages = true});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto contents = EncodeModel(*model, ModelFormat::kSafetensors);
  ASSERT_TRUE(contents.ok()) << contents.status();
  ASSERT_TRUE(WriteFileAtomically(files_, "/run/model.safetensors", *contents).ok());
  const auto reader =
      SafetensorsReader::Open(*files_.OpenForRead("/run/model.safetensors"), "model.safetensors");
  ASSERT_TRUE(reader.ok()) << reader.status();
  const SafetensorsHeader& header = (*reader)->header();
  ASSERT_EQ(header.tensors.size(), model->layout.num_variables());
  for (const VariableSpec& variable : model->layout.variables()) {
    const SafetensorsTensor* const tensor = header.Find(variable.name);
    ASSERT_NE(tensor, nullptr) << variable.name;
    EXPECT_EQ(tensor->dtype, "F32");
    EXPECT_EQ(tensor->shape, variable.shape);
    std::vector<float> values(tensor->size_bytes() / sizeof(float));
    ASSERT_TRUE((*reader)->Read(*tensor, 0, values.data(), tensor->size_bytes()).ok());
    EXPECT_EQ(absl::MakeConstSpan(values), ValuesOf(*model, variable.name)) << variable.name;
  }
  const std::map<std::string, std::string>& metadata = header.metadata;
  EXPECT_EQ(metadata.at("step"), "9");
  EXPECT_EQ(metadata.at("model"), "MobilenetV2");
  EXPECT_EQ(metadata.at("weights"), "ema");
}

TEST_F(ModelFileTest, TheFileNameDecidesTheFormat) {
  EXPECT_EQ(*ModelFormatOf("/a.onnx/model.safetensors"), ModelFormat::kSafetensors);
  EXPECT_EQ(*ModelFormatOf("model.onnx"), ModelFormat::kOnnx);
  for (const char* path : {"model", "model.pb", "model.onnx.gz", "onnx"}) {
    EXPECT_THAT(std::string(ModelFormatOf(path).status().message()),
                HasSubstr("has to end with .onnx or .safetensors"))
        << path;
  }
  const auto contents = EncodeModel(*Load({}), ModelFormat::kOnnx);
  ASSERT_TRUE(contents.ok()) << contents.status();
  onnx::ModelProto parsed;
  EXPECT_TRUE(parsed.ParseFromString(*contents));
  EXPECT_EQ(Faults(parsed), "");
  EXPECT_EQ(parsed.graph().input(0).type().tensor_type().elem_type(), onnx::TensorProto::UINT8);
  const auto raw = EncodeModel(*Load({}), ModelFormat::kOnnxRawHeads);
  ASSERT_TRUE(raw.ok()) << raw.status();
  EXPECT_TRUE(parsed.ParseFromString(*raw));
  EXPECT_EQ(TypeText(parsed.graph().input(0)), "float[1,1,40,33]");
  EXPECT_EQ(ModelFormatName(ModelFormat::kOnnx), "onnx");
  EXPECT_EQ(ModelFormatName(ModelFormat::kOnnxRawHeads), "onnx");
  EXPECT_EQ(ModelFormatName(ModelFormat::kSafetensors), "safetensors");
}

}  // namespace
}  // namespace pushpull
