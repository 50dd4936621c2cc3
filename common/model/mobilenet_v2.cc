#include "common/model/mobilenet_v2.h"

#include <string>
#include <utility>

#include "common/model/hyperparams.h"
#include "common/model/image_resize.h"
#include "common/model/mobilenet_v2_body.h"
#include "common/model/network_builder.h"

namespace pushpull {
namespace {

constexpr char kName[] = "MobilenetV2";

}  // namespace

NetworkSpec BuildMobilenetV2(const config::Classifier& classifier) {
  const LayerHyperparams hyperparams =
      classifier.feature_extractor().has_conv_hyperparams()
          ? ResolveHyperparams(classifier.feature_extractor().conv_hyperparams())
          : SlimHyperparams();
  const ImageSize size = ResizedSize(classifier.image_resizer());
  NetworkBuilder builder(kName, {size.height, size.width, classifier.num_channels()},
                         classifier.freeze_batchnorm());
  builder.network().num_classes = classifier.num_classes();
  builder.network().keep_aspect_ratio = ResolveAspectRatioResize(classifier.image_resizer());
  builder.network().label_smoothing = classifier.label_smoothing();

  MobilenetV2Widths widths;
  widths.multiplier = classifier.feature_extractor().depth_multiplier();
  widths.min_depth = classifier.feature_extractor().min_depth();
  widths.keep_last_depth = true;
  const std::string scope(kName);
  int last = AddMobilenetV2Body(scope, widths, hyperparams, &builder).layer_19;
  last = builder.AddNode(scope + "/Logits/AvgPool", op::GlobalAveragePool(), {last});
  if (classifier.hidden_units() > 0) {
    last = builder.AddBiased({scope + "/Logits/Conv2d_1b_1x1", last, 1, 1,
                              classifier.hidden_units(), hyperparams.activation},
                             hyperparams);
  }
  LayerHyperparams logits = hyperparams;
  if (classifier.has_logits_initializer()) logits.initializer = classifier.logits_initializer();
  builder.AddBiased({scope + "/Logits/Conv2d_1c_1x1", last, 1, 1, classifier.num_classes(),
                     ActivationFunction::kNone, classifier.dropout_keep_probability()},
                    logits);
  return std::move(builder).Finish();
}

}  // namespace pushpull
