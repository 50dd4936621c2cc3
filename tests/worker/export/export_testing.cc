#include "tests/worker/export/export_testing.h"

#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/base/random.h"
#include "common/checkpoint/manifest.h"
#include "common/model/model_layout.h"
#include "kernels/cpu/reference_operators.h"
#include "tests/testkit/one_shard_checkpoint.h"
#include "tests/testkit/onnx/onnx_operators.h"
#include "tests/testkit/ssd_test_config.h"
#include "worker/model/host_runner.h"

namespace pushpull {

namespace {

// Unlike parsing into the config itself, this may choose another member of a oneof.
void MergeText(const std::string& text, config::TrainEvalPipelineConfig* config) {
  config::TrainEvalPipelineConfig part;
  CHECK(google::protobuf::TextFormat::ParseFromString(text, &part)) << text;
  config->MergeFrom(part);
}

}  // namespace

config::TrainEvalPipelineConfig ClassifierConfig(const std::string& classifier) {
  config::TrainEvalPipelineConfig config;
  for (const std::string& text :
       {std::string("num_classes: 5 num_channels: 1 "
                    "image_resizer { fixed_shape_resizer { height: 40 width: 33 } } "
                    "feature_extractor { type: 'mobilenet_v2' depth_multiplier: 0.1 }"),
        classifier}) {
    MergeText("model { classifier { " + text + " } }", &config);
  }
  return config;
}

config::TrainEvalPipelineConfig DetectorConfig(const std::string& feature_extractor_type,
                                               const std::string& ssd) {
  config::TrainEvalPipelineConfig config = MakeSsdTestConfig(
      feature_extractor_type,
      "num_classes: 3 image_resizer { fixed_shape_resizer { height: 75 width: 64 } } "
      "feature_extractor { depth_multiplier: 0.1 min_depth: 8 }");
  MergeText("model { ssd { " + ssd + " } }", &config);
  return config;
}

std::vector<ExportCase> ExportCases() {
  const std::string lite =
      "box_predictor { convolutional_box_predictor { use_depthwise: true } } "
      "post_processing { score_converter: SOFTMAX logit_scale: 2 }";
  const std::string pyramid =
      "image_resizer { fixed_shape_resizer { height: 64 width: 64 } } feature_extractor { "
      "use_depthwise: true fpn { additional_layer_depth: 32 } } box_predictor { "
      "weight_shared_convolutional_box_predictor { depth: 16 num_layers_before_predictor: 2 "
      "share_prediction_tower: true use_depthwise: true conv_hyperparams { batch_norm {} } } } "
      "anchor_generator { multiscale_anchor_generator { aspect_ratios: [1.0, 2.0, 0.5] } }";
  const std::string relu =
      "feature_extractor { conv_hyperparams { activation: RELU batch_norm { scale: true } } }";
  const std::string swish =
      "feature_extractor { conv_hyperparams { activation: SWISH batch_norm { scale: true } } }";
  const std::string square =
      "image_resizer { keep_aspect_ratio_resizer { min_dimension: 48 max_dimension: 80 "
      "pad_to_max_dimension: true per_channel_pad_value: 20 "
      "per_channel_pad_value: 30 per_channel_pad_value: 40 } }";
  return {{"classifier", ClassifierConfig()},
          {"classifier_with_relu", ClassifierConfig(relu)},
          {"classifier_with_swish", ClassifierConfig(swish)},
          {"mobilenet_v3", ClassifierConfig("feature_extractor { type: 'mobilenet_v3_small' }")},
          {"resnet_v1", ClassifierConfig("feature_extractor { type: 'resnet_v1_50' }")},
          {"inception_v2", ClassifierConfig("feature_extractor { type: 'inception_v2' "
                                            "conv_hyperparams { batch_norm {} } }")},
          {"vgg", ClassifierConfig("image_resizer { fixed_shape_resizer { height: 64 width: 64 } } "
                                   "feature_extractor { type: 'vgg_a' }")},
          {"classifier_with_hidden_layer", ClassifierConfig("hidden_units: 6 num_channels: 3")},
          {"ssd_v1", DetectorConfig("ssd_mobilenet_v1")},
          {"ssd_v2", DetectorConfig("ssd_mobilenet_v2")},
          {"ssdlite", DetectorConfig("ssd_mobilenet_v2", lite)},
          {"fpn_lite", DetectorConfig("ssd_mobilenet_v2_fpn", pyramid)},
          {"classifier_with_padding", ClassifierConfig(square)},
          {"ssd_v2_with_padding_and_layers_before_the_predictor",
           DetectorConfig("ssd_mobilenet_v2",
                          square + "box_predictor { convolutional_box_predictor { "
                                   "num_layers_before_predictor: 1 max_depth: 16 } }")}};
}

std::vector<float> RandomValues(const VariableLayout& layout, uint64_t seed) {
  std::vector<float> values(layout.total_elements());
  CounterRandom random(seed, 21);
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    const VariableSpec& variable = layout.variables()[i];
    const bool about_one =
        absl::EndsWith(variable.name, "gamma") || absl::EndsWith(variable.name, "variance");
    // Kernels are [k, k, in, out], or [k, k, c, n] for a depthwise layer.
    double factor = 1.0;
    if (variable.shape.size() == 4) {
      const bool depthwise = absl::EndsWith(variable.name, "depthwise_weights");
      const int64_t area = variable.shape[0] * variable.shape[1];
      factor = std::sqrt(12.0 / static_cast<double>(area * (depthwise ? 1 : variable.shape[2])));
    }
    for (int64_t k = 0; k < layout.num_elements(i); ++k) {
      values[layout.offset(i) + k] =
          static_cast<float>(factor * (random.NextFloat() - 0.5f)) + (about_one ? 1.0f : 0.0f);
    }
  }
  return values;
}

InferenceModel MakeInferenceModel(const config::TrainEvalPipelineConfig& config, uint64_t seed) {
  auto network = BuildNetworkSpec(config.model());
  auto layout = BuildVariableLayout(config);
  std::vector<float> values = RandomValues(layout, seed);
  return {std::move(network), std::move(layout), std::move(values), 7, false, "run"};
}

std::vector<float> Infer(const NetworkSpec& spec, const std::vector<float>& values,
                         const std::vector<float>& image, int64_t num_updates) {
  const auto layout = VariableLayout::Create(spec.variables);
  EXPECT_TRUE(layout.ok()) << layout.status();
  const auto operators = MakeReferenceOperators<float>();
  RunnerOptions options;
  options.training = false;
  auto network = MakeHostRunner<float>(spec, *layout, operators.get(), options);
  EXPECT_TRUE(network.ok()) << network.status();
  ImageBatch<float> batch;
  batch.images = image.data();
  batch.samples = 1;
  EXPECT_TRUE((*network)->Infer(values, batch, num_updates).ok());
  std::vector<float> result;
  const std::vector<int> nodes = OutputNodes(spec);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const float* const output = (*network)->outputs()[i];
    result.insert(result.end(), output, output + spec.nodes[nodes[i]].shape.num_elements());
  }
  return result;
}

void PublishTestCheckpoint(FileSystem& files, const std::string& directory,
                           const VariableLayout& layout, const TestCheckpoint& checkpoint) {
  CheckpointManifest manifest;
  manifest.run_id = "00112233445566778899aabbccddeeff";
  manifest.epoch = 1;
  manifest.step = checkpoint.step;
  manifest.updates = checkpoint.updates;
  std::vector<float> ema;
  if (checkpoint.ema_seed != 0) ema = RandomValues(layout, checkpoint.ema_seed);
  const absl::Status published = PublishOneShard(files, directory, layout, manifest,
                                                 RandomValues(layout, checkpoint.seed), ema);
  CHECK(published.ok()) << published;
}

const onnx::TensorProto* FindInitializer(const onnx::GraphProto& graph, const std::string& name) {
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    if (tensor.name() == name) return &tensor;
  }
  return nullptr;
}

const onnx::NodeProto* FindProducer(const onnx::GraphProto& graph, const std::string& value) {
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& output : node.output()) {
      if (output == value) return &node;
    }
  }
  return nullptr;
}

std::vector<int64_t> Integers(const onnx::NodeProto& node, const std::string& attribute) {
  for (const onnx::AttributeProto& candidate : node.attribute()) {
    if (candidate.name() != attribute) continue;
    if (candidate.type() == onnx::AttributeProto::INT) return {candidate.i()};
    return {candidate.ints().begin(), candidate.ints().end()};
  }
  return {};
}

std::vector<float> Floats(const onnx::TensorProto& tensor) {
  CHECK_EQ(tensor.data_type(), onnx::TensorProto::FLOAT) << tensor.name();
  std::vector<float> values(tensor.raw_data().size() / sizeof(float));
  std::memcpy(values.data(), tensor.raw_data().data(), tensor.raw_data().size());
  return values;
}

std::vector<int64_t> Dimensions(const onnx::TensorProto& tensor) {
  return {tensor.dims().begin(), tensor.dims().end()};
}

std::string TypeText(const onnx::ValueInfoProto& info) {
  const onnx::TypeProto::Tensor& tensor = info.type().tensor_type();
  std::vector<std::string> dimensions;
  for (const auto& dimension : tensor.shape().dim()) {
    dimensions.push_back(dimension.has_dim_param() ? dimension.dim_param()
                                                   : absl::StrCat(dimension.dim_value()));
  }
  const std::string type = tensor.elem_type() == onnx::TensorProto::FLOAT   ? "float"
                           : tensor.elem_type() == onnx::TensorProto::UINT8 ? "uint8"
                                                                            : "other";
  return absl::StrCat(type, "[", absl::StrJoin(dimensions, ","), "]");
}

std::string Faults(const onnx::ModelProto& model) {
  std::string faults;
  std::set<std::string> known, read;
  const auto make = [&](const std::string& name) {
    if (!known.insert(name).second) absl::StrAppend(&faults, "two values ", name, "\n");
  };
  const onnx::GraphProto& graph = model.graph();
  for (const onnx::ValueInfoProto& input : graph.input()) make(input.name());
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    make(tensor.name());
    size_t bytes = tensor.data_type() == onnx::TensorProto::FLOAT ? 4 : 8;
    for (const int64_t dimension : tensor.dims()) bytes *= dimension;
    if (bytes != tensor.raw_data().size())
      absl::StrAppend(&faults, "size of ", tensor.name(), "\n");
  }
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& input : node.input()) {
      if (!input.empty() && known.count(input) == 0) {
        absl::StrAppend(&faults, node.name(), " reads ", input, " too early\n");
      }
      read.insert(input);
    }
    for (const std::string& output : node.output()) make(output);
    const absl::Status form = CheckForm(node);
    if (!form.ok()) absl::StrAppend(&faults, std::string(form.message()), "\n");
  }
  for (const onnx::ValueInfoProto& output : graph.output()) {
    if (known.count(output.name()) == 0) absl::StrAppend(&faults, "no ", output.name(), "\n");
    read.insert(output.name());
  }
  for (const std::string& name : known) {
    if (read.count(name) == 0) absl::StrAppend(&faults, "nothing reads ", name, "\n");
  }
  return faults;
}

}  // namespace pushpull
