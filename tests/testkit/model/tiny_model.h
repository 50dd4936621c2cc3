// Networks that are small enough for central differences and for emulated kernels.
#ifndef PUSHPULL_TESTS_TESTKIT_MODEL_TINY_MODEL_H_
#define PUSHPULL_TESTS_TESTKIT_MODEL_TINY_MODEL_H_

#include <string>
#include <utility>

#include "common/model/network_builder.h"
#include "common/model/network_spec.h"

namespace pushpull {

// Weights with a deviation of 0.5, no regularization.
inline LayerHyperparams TinyHyperparams() {
  LayerHyperparams hyperparams = SlimHyperparams();
  hyperparams.initializer.mutable_truncated_normal_initializer()->set_stddev(0.5f);
  hyperparams.l2_weight = 0.0f;
  return hyperparams;
}

struct TinyOptions {
  bool freeze_batch_norm = false;
  // The dropouts before the two dense layers keep with these probabilities.
  float keep_hidden = 1.0f;
  float keep_classes = 1.0f;
};

// A stem, a strided block, two residual blocks in a row, a pool, a hidden layer and classes: every
// kind of connection between layers.
inline NetworkSpec MakeTinyNetwork(const TinyOptions& options = {}) {
  NetworkBuilder builder("Tiny", {7, 6, 3}, options.freeze_batch_norm);
  builder.network().num_classes = 3;
  builder.network().label_smoothing = 0.1f;
  const LayerHyperparams plain = TinyHyperparams();
  const ActivationFunction relu6 = ActivationFunction::kRelu6;
  int last = builder.AddNormalized({"T/stem", Node::kImage, 3, 2, 4, relu6}, plain);
  last = builder.AddNormalizedDepthwise({"T/b0/depthwise", last, 3, 1, 0, relu6}, plain);
  last = builder.AddNormalized({"T/b0/project", last, 1, 1, 3}, plain);
  for (const std::string block : {"T/b1", "T/b2"}) {
    // One batch norm has no scale and another has no centre.
    LayerHyperparams expand = plain, depthwise = plain;
    expand.batch_norm->scale = block != "T/b1";
    depthwise.batch_norm->center = block != "T/b1";
    const int source = last;
    last = builder.AddNormalized({block + "/expand", last, 1, 1, 8, relu6}, expand);
    last = builder.AddNormalizedDepthwise({block + "/depthwise", last, 3, 1, 0, relu6}, depthwise);
    last = builder.AddNormalized({block + "/project", last, 1, 1, 3}, plain);
    last = builder.AddNode(block + "/add", op::Add(), {last, source});
  }
  last = builder.AddNode("T/pool", op::GlobalAveragePool(), {last});
  last = builder.AddBiased(
      {"T/hidden", last, 1, 1, 5, ActivationFunction::kRelu, options.keep_hidden}, plain);
  builder.AddBiased({"T/classes", last, 1, 1, 3, ActivationFunction::kNone, options.keep_classes},
                    plain);
  return std::move(builder).Finish();
}

// Feature maps of 6x6 and 3x3, each with a head. Three layers read the first map.
inline NetworkSpec MakeTinyDetector() {
  NetworkBuilder builder("TinyDetector", {12, 12, 3}, /*freeze_batch_norm=*/false);
  DetectionSpec detection;
  detection.num_classes = 2;
  auto& anchors = detection.anchors.emplace<SsdAnchorSpec>();
  anchors.num_layers = 2;
  anchors.aspect_ratios = {1.0f, 2.0f};
  detection.matcher.force_match_for_each_row = true;
  detection.loss.hard_example_miner.emplace().max_negatives_per_positive = 3;
  const LayerHyperparams plain = TinyHyperparams();
  const ActivationFunction relu6 = ActivationFunction::kRelu6;
  const int first = builder.AddNormalized({"D/first", Node::kImage, 3, 2, 8, relu6}, plain);
  const int second = builder.AddNormalized({"D/second", first, 3, 2, 12, relu6}, plain);
  for (const int map : {first, second}) {
    const FeatureShape shape = builder.shape(map);
    // Three shapes on the lowest map; above it, two ratios and one interpolated shape.
    const int anchors = 3;
    const std::string head = map == first ? "D/head0" : "D/head1";
    const int boxes =
        builder.AddBiased({head + "/boxes", map, 1, 1, anchors * kBoxCodeSize}, plain);
    const int classes = builder.AddBiased(
        {head + "/classes", map, 1, 1, anchors * (detection.num_classes + 1)}, plain);
    detection.heads.push_back({boxes, classes, shape.height, shape.width, anchors});
  }
  builder.network().detection = std::move(detection);
  return std::move(builder).Finish();
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_MODEL_TINY_MODEL_H_
