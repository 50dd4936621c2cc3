// Tested by tests/common/model/families/inception_v2_test.cc.
// Tested by tests/common/model/families/mobilenet_v2_test.cc.
// Tested by tests/common/model/families/mobilenet_v3_test.cc.
// Tested by tests/common/model/families/resnet_v1_test.cc.
#include "common/model/classifier.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/model/families/family.h"
#include "common/model/hyperparams.h"
#include "common/model/image_resize.h"
#include "common/model/network_builder.h"

namespace pushpull {
namespace {

ClassifierFamily FamilyOf(absl::string_view type) {
#define PUSHPULL_ROW(name, own_activations, batch_norm, head, family) \
  if (type == name) return family(type);
  PUSHPULL_CLASSIFIER_TYPES(PUSHPULL_ROW)
#undef PUSHPULL_ROW
  LOG(FATAL) << "no classifier of type " << type;
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
  const ClassifierFamily family = FamilyOf(classifier.feature_extractor().type());
  const LayerHyperparams hyperparams =
      classifier.feature_extractor().has_conv_hyperparams()
          ? ResolveHyperparams(classifier.feature_extractor().conv_hyperparams())
          : family.scope();
  const ImageSize size = ResizedSize(classifier.image_resizer());
  NetworkBuilder builder(family.name, {size.height, size.width, classifier.num_channels()},
                         classifier.freeze_batchnorm());
  builder.network().num_classes = classifier.num_classes();
  builder.network().keep_aspect_ratio = ResolveAspectRatioResize(classifier.image_resizer());
  builder.network().label_smoothing = classifier.label_smoothing();

  int last = family.add_body(classifier, hyperparams, &builder);
  if (FindClassifierType(classifier.feature_extractor().type())->head ==
      ClassifierHead::kGlobalPool) {
    last = builder.AddNode(family.name + "/Logits/AvgPool", op::GlobalAveragePool(), {last});
  }
  if (family.add_top != nullptr) {
    last = family.add_top(classifier, last, hyperparams, &builder);
  }
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
