#include "tests/testkit/ssd_test_config.h"

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"

#include "common/config/model_types.h"

namespace pushpull {
namespace {

constexpr char kModel[] = R"(
  model {
    ssd {
      num_classes: 37
      box_coder {
        faster_rcnn_box_coder { y_scale: 10 x_scale: 10 height_scale: 5 width_scale: 5 }
      }
      matcher {
        argmax_matcher {
          matched_threshold: 0.5 unmatched_threshold: 0.5 ignore_thresholds: false
          negatives_lower_than_unmatched: true force_match_for_each_row: true
        }
      }
      similarity_calculator { iou_similarity {} }
      anchor_generator {
        ssd_anchor_generator {
          num_layers: 6 min_scale: 0.2 max_scale: 0.95
          aspect_ratios: 1.0 aspect_ratios: 2.0 aspect_ratios: 0.5 aspect_ratios: 3.0
          aspect_ratios: 0.3333
        }
      }
      image_resizer { fixed_shape_resizer { height: 300 width: 300 } }
      box_predictor {
        convolutional_box_predictor {
          min_depth: 0 max_depth: 0 num_layers_before_predictor: 0 use_dropout: false
          dropout_keep_probability: 0.8 kernel_size: 1 box_code_size: 4
          apply_sigmoid_to_scores: false
          conv_hyperparams {
            activation: RELU_6
            regularizer { l2_regularizer { weight: 0.00004 } }
            initializer { truncated_normal_initializer { stddev: 0.03 mean: 0.0 } }
            batch_norm { train: true scale: true center: true decay: 0.9997 epsilon: 0.001 }
          }
        }
      }
      feature_extractor {
        min_depth: 16 depth_multiplier: 1.0
        conv_hyperparams {
          activation: RELU_6
          regularizer { l2_regularizer { weight: 0.00004 } }
          initializer { truncated_normal_initializer { stddev: 0.03 mean: 0.0 } }
          batch_norm { train: true scale: true center: true decay: 0.9997 epsilon: 0.001 }
        }
      }
      loss {
        classification_loss { weighted_sigmoid {} }
        localization_loss { weighted_smooth_l1 {} }
        hard_example_miner {
          num_hard_examples: 3000 iou_threshold: 0.99 loss_type: CLASSIFICATION
          max_negatives_per_positive: 3 min_negatives_per_image: 0
        }
        classification_weight: 1.0 localization_weight: 1.0
      }
      normalize_loss_by_num_matches: true
      post_processing {
        batch_non_max_suppression {
          score_threshold: 1e-8 iou_threshold: 0.6 max_detections_per_class: 100
          max_total_detections: 100
        }
        score_converter: SIGMOID
      }
    }
  })";

constexpr char kV2[] = R"(
  model {
    ssd {
      num_classes: 90
      box_predictor { convolutional_box_predictor { kernel_size: 3 } }
      feature_extractor { use_depthwise: true }
      loss { hard_example_miner { min_negatives_per_image: 3 } }
    }
  })";

void Merge(const std::string& text, config::TrainEvalPipelineConfig* config) {
  config::TrainEvalPipelineConfig part;
  CHECK(google::protobuf::TextFormat::ParseFromString(text, &part)) << text;
  config->MergeFrom(part);
}

}  // namespace

config::TrainEvalPipelineConfig MakeSsdTestConfig(const std::string& feature_extractor_type,
                                                  const std::string& ssd,
                                                  const std::string& train_config) {
  config::TrainEvalPipelineConfig config;
  Merge(kModel, &config);
  config.mutable_model()->mutable_ssd()->mutable_feature_extractor()->set_type(
      feature_extractor_type);
  if (feature_extractor_type == "ssd_mobilenet_v2") Merge(kV2, &config);
  Merge("model { ssd { " + ssd + " } } train_config { " + train_config + " }", &config);
  return config;
}

std::string SsdTestSettings(absl::string_view type, int size) {
  const SsdType row = *FindSsdType(type);
  const std::string image = absl::StrCat("image_resizer { fixed_shape_resizer { height: ", size,
                                         " width: ", size, " } } ");
  if (!HasLevels(row.maps)) {
    return absl::StrCat(image, "anchor_generator { ssd_anchor_generator { num_layers: ",
                        row.num_layers > 0 ? row.num_layers : 6, " } }");
  }
  const std::string levels =
      absl::StrCat("min_level: 3 max_level: ", row.maps == FeatureMaps::kMnasFpn ? 6 : 7);
  return absl::StrCat(
      image, "feature_extractor { fpn { ", levels,
      " } } box_predictor { weight_shared_convolutional_box_predictor { depth: 16 "
      "num_layers_before_predictor: 4 conv_hyperparams { activation: RELU_6 batch_norm { scale: "
      "true } } } } anchor_generator { multiscale_anchor_generator { ",
      levels, " aspect_ratios: [1.0, 2.0, 0.5] } }");
}

}  // namespace pushpull
