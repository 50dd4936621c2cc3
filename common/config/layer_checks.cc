// Tested by tests/common/config/validate_config_test.cc.
#include "common/config/layer_checks.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/config/nearest_name.h"

namespace pushpull {
namespace {

void CheckKeepAspectRatio(const config::KeepAspectRatioResizer& resizer, const std::string& field,
                          int min_side, FieldChecker* checker) {
  checker->Between(field + ".max_dimension", resizer.max_dimension(), min_side, kMaxSide);
  checker->Between(field + ".min_dimension", resizer.min_dimension(), 1, resizer.max_dimension());
  const int pads = resizer.per_channel_pad_value_size();
  if (pads != 0 && pads != kImageChannels) {
    checker->Add(field + ".per_channel_pad_value", "none or three values, one per channel",
                 absl::StrCat(pads));
  }
  for (const float pad : resizer.per_channel_pad_value()) {
    checker->Within(field + ".per_channel_pad_value", pad, 0.0, 255.0);
  }
}

}  // namespace

void AddUnknownType(const std::string& field, const std::string& type,
                    absl::Span<const absl::string_view> types, FieldChecker* checker) {
  const std::vector<std::string> names(types.begin(), types.end());
  const std::string expected = absl::StrCat("one of \"", absl::StrJoin(names, "\", \""), "\"");
  checker->Add(field, expected, absl::StrCat("\"", type, "\"", DidYouMean(type, names)));
}

void CheckInitializer(const config::WeightInitializer& initializer, const std::string& field,
                      FieldChecker* checker) {
  if (initializer.has_truncated_normal_initializer()) {
    checker->Positive(field + ".truncated_normal_initializer.stddev",
                      initializer.truncated_normal_initializer().stddev());
  } else if (initializer.has_random_normal_initializer()) {
    checker->Positive(field + ".random_normal_initializer.stddev",
                      initializer.random_normal_initializer().stddev());
  } else if (initializer.has_variance_scaling_initializer()) {
    checker->Positive(field + ".variance_scaling_initializer.factor",
                      initializer.variance_scaling_initializer().factor());
  }
}

void CheckHyperparams(const config::Hyperparams& hyperparams, const std::string& field,
                      BatchNormUse batch_norm, FieldChecker* checker) {
  if (hyperparams.regularizer().has_l2_regularizer()) {
    checker->NotNegative(field + ".regularizer.l2_regularizer.weight",
                         hyperparams.regularizer().l2_regularizer().weight());
  }
  CheckInitializer(hyperparams.initializer(), field + ".initializer", checker);
  if (hyperparams.has_batch_norm()) {
    checker->Fraction(field + ".batch_norm.decay", hyperparams.batch_norm().decay());
    checker->Positive(field + ".batch_norm.epsilon", hyperparams.batch_norm().epsilon());
  } else if (batch_norm == BatchNormUse::kRequired &&
             hyperparams.normalizer_oneof_case() == config::Hyperparams::NORMALIZER_ONEOF_NOT_SET) {
    checker->Missing(field + ".batch_norm", "batch_norm");
  }
}

void CheckInitializerWithoutBatchNorm(const config::Hyperparams& hyperparams,
                                      const std::string& field, FieldChecker* checker) {
  if (hyperparams.has_batch_norm() || hyperparams.initializer().initializer_oneof_case() !=
                                          config::WeightInitializer::INITIALIZER_ONEOF_NOT_SET) {
    return;
  }
  checker->Add(field + ".initializer", "variance_scaling_initializer {} or another one", "none",
               "set it: with the default, truncated normal 0.09, the values of a network without "
               "batch norm grow from layer to layer");
}

std::array<int, 2> InputSides(const config::ImageResizer& resizer) {
  if (resizer.has_keep_aspect_ratio_resizer()) {
    const int side = resizer.keep_aspect_ratio_resizer().max_dimension();
    return {side, side};
  }
  return {resizer.fixed_shape_resizer().height(), resizer.fixed_shape_resizer().width()};
}

void CheckImageResizer(const config::ImageResizer& resizer, const std::string& field, int min_side,
                       FieldChecker* checker) {
  if (resizer.has_keep_aspect_ratio_resizer()) {
    CheckKeepAspectRatio(resizer.keep_aspect_ratio_resizer(), field + ".keep_aspect_ratio_resizer",
                         min_side, checker);
  } else if (resizer.has_fixed_shape_resizer()) {
    const config::FixedShapeResizer& fixed = resizer.fixed_shape_resizer();
    checker->Between(field + ".fixed_shape_resizer.height", fixed.height(), min_side, kMaxSide);
    checker->Between(field + ".fixed_shape_resizer.width", fixed.width(), min_side, kMaxSide);
  } else if (resizer.image_resizer_oneof_case() ==
             config::ImageResizer::IMAGE_RESIZER_ONEOF_NOT_SET) {
    checker->Missing(field, "fixed_shape_resizer { height: H width: W }");
  }
}

void WarnAboutPadding(const config::ImageResizer& resizer, const std::string& field,
                      std::vector<std::string>* warnings) {
  if (!resizer.has_keep_aspect_ratio_resizer()) return;
  const config::KeepAspectRatioResizer& keep = resizer.keep_aspect_ratio_resizer();
  if (keep.pad_to_max_dimension()) return;
  warnings->push_back(absl::StrCat(
      field, ".keep_aspect_ratio_resizer.pad_to_max_dimension is false, but images are padded to ",
      keep.max_dimension(), " x ", keep.max_dimension(),
      " pixels, because the network has one input size; TensorFlow would give it images of "
      "different sizes"));
}

}  // namespace pushpull
