#include "common/model/mobilenet_v2.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/model/hyperparams.h"
#include "common/model/image_resize.h"
#include "common/model/mobilenet_v2_body.h"
#include "common/model/network_builder.h"

namespace pushpull {
namespace {

constexpr char kName[] = "MobilenetV2";
constexpr int kMinImageSize = 32;
constexpr int kMaxImageSize = 4096;

template <typename T>
absl::Status FieldError(absl::string_view name, T got, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("model.classifier.", name, " is ", got, ", expected ", expected));
}

absl::Status CheckSize(absl::string_view name, int size) {
  if (size >= kMinImageSize && size <= kMaxImageSize) return absl::OkStatus();
  return FieldError(absl::StrCat("image_resizer: ", name), size,
                    absl::StrCat(kMinImageSize, " to ", kMaxImageSize));
}

absl::Status CheckClassifier(const config::Classifier& classifier) {
  if (classifier.image_resizer().image_resizer_oneof_case() ==
      config::ImageResizer::IMAGE_RESIZER_ONEOF_NOT_SET) {
    return absl::InvalidArgumentError(
        "model.classifier.image_resizer.fixed_shape_resizer is missing: it gives the input size");
  }
  const ImageSize size = ResizedSize(classifier.image_resizer());
  PP_RETURN_IF_ERROR(CheckSize("height", size.height));
  PP_RETURN_IF_ERROR(CheckSize("width", size.width));
  if (classifier.num_classes() < 1) {
    return FieldError("num_classes", classifier.num_classes(), "at least 1");
  }
  if (classifier.num_channels() != 1 && classifier.num_channels() != 3) {
    return FieldError("num_channels", classifier.num_channels(), "1 (grey) or 3 (RGB)");
  }
  if (classifier.hidden_units() < 0) {
    return FieldError("hidden_units", classifier.hidden_units(), "0 (none) or more");
  }
  const float keep = classifier.dropout_keep_probability();
  if (!(keep > 0.0f && keep <= 1.0f)) {
    return FieldError("dropout_keep_probability", keep, "a value in (0, 1]");
  }
  const float smoothing = classifier.label_smoothing();
  if (!(smoothing >= 0.0f && smoothing < 1.0f)) {
    return FieldError("label_smoothing", smoothing, "a value in [0, 1)");
  }
  const float width = classifier.feature_extractor().depth_multiplier();
  if (!(width > 0.0f && width <= 16.0f)) {
    return FieldError("feature_extractor.depth_multiplier", width, "a value in (0, 16]");
  }
  if (classifier.feature_extractor().min_depth() < 1) {
    return FieldError("feature_extractor.min_depth", classifier.feature_extractor().min_depth(),
                      "at least 1");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NetworkSpec> BuildMobilenetV2(const config::Classifier& classifier) {
  PP_RETURN_IF_ERROR(CheckClassifier(classifier));
  LayerHyperparams hyperparams = SlimHyperparams();
  if (classifier.feature_extractor().has_conv_hyperparams()) {
    PP_ASSIGN_OR_RETURN(hyperparams,
                        ResolveHyperparams(classifier.feature_extractor().conv_hyperparams(),
                                           "model.classifier.feature_extractor.conv_hyperparams"));
    PP_RETURN_IF_ERROR(
        RequireBatchNorm(hyperparams, "model.classifier.feature_extractor.conv_hyperparams"));
  }
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
  last = builder.AddGlobalAveragePool(scope + "/Logits/AvgPool", last);
  if (classifier.hidden_units() > 0) {
    last = builder.AddBiased({LayerKind::kDense, scope + "/Logits/Conv2d_1b_1x1", last, 1, 1,
                              classifier.hidden_units(), hyperparams.activation},
                             hyperparams);
  }
  last = builder.AddBiased({LayerKind::kDense, scope + "/Logits/Conv2d_1c_1x1", last, 1, 1,
                            classifier.num_classes(), ActivationFunction::kNone},
                           hyperparams);
  LayerSpec& logits = builder.layer(last);
  logits.dropout_keep_probability = classifier.dropout_keep_probability();
  if (classifier.has_logits_initializer()) {
    logits.weights_initializer =
        ResolveInitializer(classifier.logits_initializer(), WeightsShape(logits));
  }
  return std::move(builder).Finish();
}

}  // namespace pushpull
