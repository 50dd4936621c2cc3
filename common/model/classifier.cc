// Tested by tests/common/model/families/mobilenet_v2_test.cc.
// Tested by tests/common/model/families/mobilenet_v3_test.cc.
// Tested by tests/common/model/families/resnet_v1_test.cc.
#include "common/model/classifier.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/model/families/mobilenet_v2.h"
#include "common/model/families/mobilenet_v3.h"
#include "common/model/families/resnet_v1.h"
#include "common/model/hyperparams.h"
#include "common/model/image_resize.h"
#include "common/model/network_builder.h"

namespace pushpull {
namespace {

// What a family adds to a classifier.
struct Family {
  std::string name;    // of the network, and the scope of its variables
  std::string hidden;  // scopes of the dense layers
  std::string logits;
  // Adds everything before the global average pool, and what lies between the pool and the class
  // scores. Return the last node.
  int (*add_body)(const config::Classifier& classifier, const LayerHyperparams& hyperparams,
                  NetworkBuilder* builder);
  int (*add_top)(const config::Classifier& classifier, int pool,
                 const LayerHyperparams& hyperparams, NetworkBuilder* builder);
};

constexpr char kMobilenetV2[] = "MobilenetV2";
constexpr char kMobilenetV3[] = "MobilenetV3";

int AddMobilenetV2(const config::Classifier& classifier, const LayerHyperparams& hyperparams,
                   NetworkBuilder* builder) {
  MobilenetV2Widths widths;
  widths.multiplier = classifier.feature_extractor().depth_multiplier();
  widths.min_depth = classifier.feature_extractor().min_depth();
  widths.keep_last_depth = true;
  return AddMobilenetV2Body(kMobilenetV2, widths, hyperparams, builder).layer_19;
}

int AddNothing(const config::Classifier&, int pool, const LayerHyperparams&, NetworkBuilder*) {
  return pool;
}

MobilenetV3Options OptionsOf(const config::Classifier& classifier) {
  const config::ClassifierFeatureExtractor& extractor = classifier.feature_extractor();
  return {
      extractor.type() == "mobilenet_v3_small" ? MobilenetV3Size::kSmall : MobilenetV3Size::kLarge,
      extractor.depth_multiplier(), extractor.min_depth()};
}

int AddMobilenetV3(const config::Classifier& classifier, const LayerHyperparams& hyperparams,
                   NetworkBuilder* builder) {
  return AddMobilenetV3Body(kMobilenetV3, OptionsOf(classifier), hyperparams, builder).stride_32;
}

int AddMobilenetV3Head(const config::Classifier& classifier, int pool,
                       const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  return AddMobilenetV3Top(kMobilenetV3, pool, OptionsOf(classifier), hyperparams, builder);
}

int AddResnetV1(const config::Classifier& classifier, const LayerHyperparams& hyperparams,
                NetworkBuilder* builder) {
  const config::ClassifierFeatureExtractor& extractor = classifier.feature_extractor();
  ResnetV1Options options{50, extractor.depth_multiplier(), extractor.min_depth()};
  if (extractor.type() == "resnet_v1_101") options.layers = 101;
  if (extractor.type() == "resnet_v1_152") options.layers = 152;
  LayerHyperparams relu = hyperparams;
  relu.activation = ActivationFunction::kRelu;
  return AddResnetV1Body(extractor.type(), options, relu, builder).blocks.back();
}

Family FamilyOf(const std::string& type) {
  const std::string hidden = "Logits/Conv2d_1b_1x1", logits = "Logits/Conv2d_1c_1x1";
  if (type == "mobilenet_v3_large" || type == "mobilenet_v3_small") {
    return {kMobilenetV3, hidden, logits, AddMobilenetV3, AddMobilenetV3Head};
  }
  if (type == "resnet_v1_50" || type == "resnet_v1_101" || type == "resnet_v1_152") {
    return {type, "hidden", "logits", AddResnetV1, AddNothing};
  }
  CHECK_EQ(type, "mobilenet_v2");
  return {kMobilenetV2, hidden, logits, AddMobilenetV2, AddNothing};
}

// Returns the activation of the hidden dense layer. `hyperparams` are those of the convolutions.
ActivationFunction HiddenActivation(const config::Classifier& classifier,
                                    const LayerHyperparams& hyperparams) {
  if (!classifier.has_hidden_activation()) return hyperparams.activation;
  config::Hyperparams hidden;
  hidden.set_activation(classifier.hidden_activation());
  return ResolveHyperparams(hidden).activation;
}

}  // namespace

NetworkSpec BuildClassifier(const config::Classifier& classifier) {
  const LayerHyperparams hyperparams =
      classifier.feature_extractor().has_conv_hyperparams()
          ? ResolveHyperparams(classifier.feature_extractor().conv_hyperparams())
          : SlimHyperparams();
  const Family family = FamilyOf(classifier.feature_extractor().type());
  const ImageSize size = ResizedSize(classifier.image_resizer());
  NetworkBuilder builder(family.name, {size.height, size.width, classifier.num_channels()},
                         classifier.freeze_batchnorm());
  builder.network().num_classes = classifier.num_classes();
  builder.network().keep_aspect_ratio = ResolveAspectRatioResize(classifier.image_resizer());
  builder.network().label_smoothing = classifier.label_smoothing();

  int last = family.add_body(classifier, hyperparams, &builder);
  last = builder.AddNode(family.name + "/Logits/AvgPool", op::GlobalAveragePool(), {last});
  last = family.add_top(classifier, last, hyperparams, &builder);
  if (classifier.hidden_units() > 0) {
    last = builder.AddBiased({absl::StrCat(family.name, "/", family.hidden), last, 1, 1,
                              classifier.hidden_units(), HiddenActivation(classifier, hyperparams)},
                             hyperparams);
  }
  LayerHyperparams logits = hyperparams;
  if (classifier.has_logits_initializer()) logits.initializer = classifier.logits_initializer();
  builder.AddBiased(
      {absl::StrCat(family.name, "/", family.logits), last, 1, 1, classifier.num_classes(),
       ActivationFunction::kNone, classifier.dropout_keep_probability()},
      logits);
  return std::move(builder).Finish();
}

}  // namespace pushpull
