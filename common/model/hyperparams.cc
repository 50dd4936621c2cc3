// Tested by tests/common/model/ssd_mobilenet_test.cc.
#include "common/model/hyperparams.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr float kSlimDeviation = 0.09f;
constexpr float kSlimL2Weight = 4e-5f;

absl::Status FieldError(absl::string_view field, absl::string_view name, double got,
                        absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ".", name, " is ", got, ", expected ", expected));
}

absl::Status CheckBatchNorm(const config::BatchNorm& batch_norm, absl::string_view field) {
  if (!(batch_norm.decay() >= 0.0f && batch_norm.decay() < 1.0f)) {
    return FieldError(field, "batch_norm.decay", batch_norm.decay(), "a value in [0, 1)");
  }
  if (!(batch_norm.epsilon() > 0.0f && std::isfinite(batch_norm.epsilon()))) {
    return FieldError(field, "batch_norm.epsilon", batch_norm.epsilon(), "a positive value");
  }
  return absl::OkStatus();
}

absl::Status CheckInitializer(const config::WeightInitializer& initializer,
                              absl::string_view field) {
  const auto positive = [](float value) { return value > 0.0f && std::isfinite(value); };
  switch (initializer.initializer_oneof_case()) {
    case config::WeightInitializer::kTruncatedNormalInitializer:
      if (!positive(initializer.truncated_normal_initializer().stddev())) {
        return FieldError(field, "initializer.truncated_normal_initializer.stddev",
                          initializer.truncated_normal_initializer().stddev(), "a positive value");
      }
      break;
    case config::WeightInitializer::kRandomNormalInitializer:
      if (!positive(initializer.random_normal_initializer().stddev())) {
        return FieldError(field, "initializer.random_normal_initializer.stddev",
                          initializer.random_normal_initializer().stddev(), "a positive value");
      }
      break;
    case config::WeightInitializer::kVarianceScalingInitializer:
      if (!positive(initializer.variance_scaling_initializer().factor())) {
        return FieldError(field, "initializer.variance_scaling_initializer.factor",
                          initializer.variance_scaling_initializer().factor(), "a positive value");
      }
      break;
    case config::WeightInitializer::INITIALIZER_ONEOF_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

absl::StatusOr<ActivationFunction> ResolveActivation(config::Hyperparams::Activation activation,
                                                     absl::string_view field) {
  switch (activation) {
    case config::Hyperparams::RELU:
      return ActivationFunction::kRelu;
    case config::Hyperparams::RELU_6:
      return ActivationFunction::kRelu6;
    case config::Hyperparams::NONE:
      return ActivationFunction::kNone;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(field, ".activation is ", config::Hyperparams::Activation_Name(activation),
                       ", expected NONE, RELU or RELU_6"));
  }
}

Initializer ScaleVariance(const config::VarianceScalingInitializer& scaling,
                          const std::vector<int64_t>& shape) {
  const size_t rank = shape.size();
  double fan_in = rank > 1 ? shape[rank - 2] : shape[rank - 1];
  double fan_out = shape[rank - 1];
  for (size_t i = 0; i + 2 < rank; ++i) {
    fan_in *= shape[i];
    fan_out *= shape[i];
  }
  double n = fan_in;
  if (scaling.mode() == config::VarianceScalingInitializer::FAN_OUT) n = fan_out;
  if (scaling.mode() == config::VarianceScalingInitializer::FAN_AVG) n = (fan_in + fan_out) / 2.0;
  if (scaling.uniform()) {
    return {Initializer::Kind::kUniform, 0.0f,
            static_cast<float>(std::sqrt(3.0 * scaling.factor() / n))};
  }
  return {Initializer::Kind::kTruncatedNormal, 0.0f,
          static_cast<float>(std::sqrt(1.3 * scaling.factor() / n))};
}

}  // namespace

LayerHyperparams SlimHyperparams() {
  LayerHyperparams result;
  result.initializer.mutable_truncated_normal_initializer()->set_stddev(kSlimDeviation);
  result.l2_weight = kSlimL2Weight;
  return result;
}

absl::StatusOr<LayerHyperparams> ResolveHyperparams(const config::Hyperparams& hyperparams,
                                                    absl::string_view field) {
  PP_RETURN_IF_ERROR(CheckBatchNorm(hyperparams.batch_norm(), field));
  PP_RETURN_IF_ERROR(CheckInitializer(hyperparams.initializer(), field));
  LayerHyperparams result = SlimHyperparams();
  if (hyperparams.initializer().initializer_oneof_case() !=
      config::WeightInitializer::INITIALIZER_ONEOF_NOT_SET) {
    result.initializer = hyperparams.initializer();
  }
  result.l2_weight = hyperparams.regularizer().has_l2_regularizer()
                         ? hyperparams.regularizer().l2_regularizer().weight()
                         : 0.0f;
  if (!(result.l2_weight >= 0.0f && std::isfinite(result.l2_weight))) {
    return FieldError(field, "regularizer.l2_regularizer.weight", result.l2_weight,
                      "a value of at least 0");
  }
  result.regularize_depthwise = hyperparams.regularize_depthwise();
  PP_ASSIGN_OR_RETURN(result.activation, ResolveActivation(hyperparams.activation(), field));
  if (!hyperparams.has_batch_norm()) {
    result.batch_norm.reset();
    return result;
  }
  const config::BatchNorm& batch_norm = hyperparams.batch_norm();
  result.batch_norm->decay = batch_norm.decay();
  result.batch_norm->epsilon = batch_norm.epsilon();
  result.batch_norm->center = batch_norm.center();
  result.batch_norm->scale = batch_norm.scale();
  result.batch_norm->frozen = !batch_norm.train();
  result.batch_norm->bias_corrected = batch_norm.bias_corrected_moving_statistics();
  return result;
}

absl::Status RequireBatchNorm(const LayerHyperparams& hyperparams, absl::string_view field) {
  if (hyperparams.batch_norm.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, ".batch_norm is missing: convolutions without batch normalisation are not supported"));
}

Initializer ResolveInitializer(const config::WeightInitializer& initializer,
                               const std::vector<int64_t>& shape) {
  switch (initializer.initializer_oneof_case()) {
    case config::WeightInitializer::kTruncatedNormalInitializer:
      return {Initializer::Kind::kTruncatedNormal,
              initializer.truncated_normal_initializer().mean(),
              initializer.truncated_normal_initializer().stddev()};
    case config::WeightInitializer::kRandomNormalInitializer:
      return {Initializer::Kind::kRandomNormal, initializer.random_normal_initializer().mean(),
              initializer.random_normal_initializer().stddev()};
    case config::WeightInitializer::kVarianceScalingInitializer:
      return ScaleVariance(initializer.variance_scaling_initializer(), shape);
    case config::WeightInitializer::INITIALIZER_ONEOF_NOT_SET:
      break;
  }
  return {};
}

}  // namespace pushpull
