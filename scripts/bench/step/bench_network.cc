#include "scripts/bench/step/bench_network.h"

#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"

#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/config/model_checks.h"
#include "common/config/model_types.h"
#include "common/config/validate_config.h"
#include "common/model/initializers.h"
#include "common/model/model_layout.h"
#include "kernels/image_block.h"
#include "worker/model/network_runner.h"

namespace pushpull {
namespace {

// With slim's default initializer the first gradients are so steep that rounding errors decide the
// course of a training. With these weights, two implementations stay close to each other.
constexpr char kClassifier[] = R"(
  model {
    classifier {
      feature_extractor {
        conv_hyperparams {
          initializer { variance_scaling_initializer { factor: 2.0 mode: FAN_AVG } }
          batch_norm { decay: 0.997 scale: true }
        }
      }
    }
  })";
constexpr char kDetector[] = R"(
  model {
    ssd {
      box_coder { faster_rcnn_box_coder {} }
      matcher { argmax_matcher { force_match_for_each_row: true } }
      similarity_calculator { iou_similarity {} }
      anchor_generator {
        ssd_anchor_generator {
          aspect_ratios: 1.0 aspect_ratios: 2.0 aspect_ratios: 0.5 aspect_ratios: 3.0
          aspect_ratios: 0.3333
        }
      }
      box_predictor { convolutional_box_predictor { use_dropout: false } }
      feature_extractor {
        override_base_feature_extractor_hyperparams: true
        conv_hyperparams {
          activation: RELU_6
          initializer { variance_scaling_initializer { factor: 2.0 mode: FAN_AVG } }
          batch_norm { decay: 0.9997 scale: true }
        }
      }
      loss {
        classification_loss { weighted_sigmoid {} }
        localization_loss { weighted_smooth_l1 {} }
        hard_example_miner {
          num_hard_examples: 3000 iou_threshold: 0.99 loss_type: CLASSIFICATION
          max_negatives_per_positive: 3 min_negatives_per_image: 3
        }
      }
    }
  })";

void SetSize(int size, config::ImageResizer* resizer) {
  resizer->mutable_fixed_shape_resizer()->set_height(size);
  resizer->mutable_fixed_shape_resizer()->set_width(size);
}

config::TrainEvalPipelineConfig MakeClassifierConfig(const BenchNetworkOptions& options) {
  config::TrainEvalPipelineConfig config;
  CHECK(google::protobuf::TextFormat::ParseFromString(kClassifier, &config));
  config::Classifier* const classifier = config.mutable_model()->mutable_classifier();
  classifier->set_num_classes(options.classes);
  SetSize(options.size, classifier->mutable_image_resizer());
  config::ClassifierFeatureExtractor* const extractor = classifier->mutable_feature_extractor();
  extractor->set_type(options.model);
  extractor->set_depth_multiplier(static_cast<float>(options.width));
  if (options.model == "mobilenet_v2") {
    extractor->mutable_conv_hyperparams()->set_activation(config::Hyperparams::RELU_6);
  }
  const std::optional<ClassifierType> type = FindClassifierType(options.model);
  if (type.has_value() && type->batch_norm == BatchNormUse::kOptional) {
    extractor->mutable_conv_hyperparams()->clear_batch_norm();  // the network of the paper
  }
  return config;
}

// Version 1 has 1x1 heads and dense extra layers; version 2 has 3x3 heads and separable extra
// layers.
config::TrainEvalPipelineConfig MakeDetectorConfig(const BenchNetworkOptions& options) {
  config::TrainEvalPipelineConfig config;
  CHECK(google::protobuf::TextFormat::ParseFromString(kDetector, &config));
  config::Ssd* const ssd = config.mutable_model()->mutable_ssd();
  ssd->set_num_classes(options.classes);
  SetSize(options.size, ssd->mutable_image_resizer());
  const bool second = options.model == "ssd_mobilenet_v2";
  config::SsdFeatureExtractor* const extractor = ssd->mutable_feature_extractor();
  extractor->set_type(options.model);
  extractor->set_depth_multiplier(static_cast<float>(options.width));
  extractor->set_use_depthwise(second);
  ssd->mutable_box_predictor()->mutable_convolutional_box_predictor()->set_kernel_size(second ? 3
                                                                                              : 1);
  return config;
}

// Draws a box whose sides are a tenth to a half of the image's side.
LabeledBox DrawObject(int num_classes, CounterRandom* random) {
  const float height = 0.1f + 0.4f * random->NextFloat();
  const float width = 0.1f + 0.4f * random->NextFloat();
  const float y = (1.0f - height) * random->NextFloat();
  const float x = (1.0f - width) * random->NextFloat();
  return {
      {y, x, y + height, x + width}, static_cast<int32_t>(random->NextBelow(num_classes)), 1.0f};
}

void DrawImages(const NetworkSpec& spec, CounterRandom* random, BenchBatch* batch) {
  const ImageInput input = ImageInputOf(spec);
  const int64_t elements = spec.input.num_elements();
  const int64_t image_bytes = AlignedImageBytes(elements);
  const int64_t header = ImageHeaderBytes(batch->samples);
  batch->packed_images.resize(header + batch->samples * image_bytes);
  for (int64_t s = 0; s < batch->samples; ++s) {
    PackedImage image = {};
    image.offset = header + s * image_bytes;
    image.height = image.resized_height = input.height;
    image.width = image.resized_width = input.width;
    image.channels = input.channels;
    image.map = WholeImage(input.height, input.width);
    std::memcpy(batch->packed_images.data() + s * sizeof(image), &image, sizeof(image));
    for (int64_t i = 0; i < elements; ++i) {
      const uint8_t byte = static_cast<uint8_t>(random->NextBelow(256));
      batch->packed_images[image.offset + i] = static_cast<char>(byte);
      batch->images.push_back(NormalizedPixel(byte));
    }
  }
}

}  // namespace

absl::StatusOr<BenchNetwork> MakeBenchNetwork(const BenchNetworkOptions& options) {
  config::TrainEvalPipelineConfig config;
  FieldChecker checker;
  if (options.model == "ssd_mobilenet_v1" || options.model == "ssd_mobilenet_v2") {
    config = MakeDetectorConfig(options);
    std::vector<std::string> warnings;
    CheckSsd(config.model().ssd(), &checker, &warnings);
  } else {
    config = MakeClassifierConfig(options);
    CheckClassifier(config.model().classifier(), &checker);
  }
  PP_RETURN_IF_ERROR(ProblemsToStatus(options.model, checker.problems()));
  return BenchNetwork{options.model, BuildNetworkSpec(config.model()), BuildVariableLayout(config)};
}

absl::StatusOr<BenchNetwork> LoadBenchNetwork(const std::string& path) {
  PP_ASSIGN_OR_RETURN(const config::TrainEvalPipelineConfig config, LoadValidConfig(path, {}));
  return BenchNetwork{path, BuildNetworkSpec(config.model()), BuildVariableLayout(config),
                      config.train_config().batch_size()};
}

std::vector<float> InitialVariables(const BenchNetwork& network) {
  std::vector<float> variables(network.layout.total_elements());
  InitializeVariables(network.layout, 1, absl::MakeSpan(variables));
  return variables;
}

BenchBatch MakeBenchBatch(const NetworkSpec& spec, int64_t samples) {
  CounterRandom random(1, 2);
  BenchBatch batch;
  batch.samples = samples;
  DrawImages(spec, &random, &batch);
  batch.labels.resize(samples);
  for (int32_t& label : batch.labels) {
    label = static_cast<int32_t>(random.NextBelow(spec.num_classes));
  }
  batch.first_object.assign(samples + 1, 0);
  if (!spec.detection.has_value()) return batch;
  for (int64_t s = 0; s < samples; ++s) {
    for (int i = 0; i < BenchBatch::kObjectsPerImage; ++i) {
      batch.objects.push_back(DrawObject(spec.num_classes, &random));
    }
    batch.first_object[s + 1] = static_cast<int32_t>(batch.objects.size());
  }
  return batch;
}

}  // namespace pushpull
