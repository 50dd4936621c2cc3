// Converts conv_hyperparams messages into the settings of a layer. Thread-safe functions.
#ifndef PUSHPULL_COMMON_MODEL_HYPERPARAMS_H_
#define PUSHPULL_COMMON_MODEL_HYPERPARAMS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/operators.h"
#include "common/model/variable_layout.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

struct BatchNormHyperparams {
  float decay = 0.997f;  // of the moving statistics
  float epsilon = 0.001f;
  bool center = true;  // there is a beta
  bool scale = true;   // there is a gamma
  // As in op::BatchNorm.
  bool frozen = false;
  bool bias_corrected = false;
};

struct LayerHyperparams {
  config::WeightInitializer initializer;
  // The initializer of depthwise weights, if they have another one.
  std::optional<config::WeightInitializer> depthwise_initializer{};
  float l2_weight = 0.0f;
  bool regularize_depthwise = false;
  ActivationFunction activation = ActivationFunction::kRelu6;
  std::optional<BatchNormHyperparams> batch_norm = BatchNormHyperparams();
};

// Returns the training scope of MobileNetV2 in TensorFlow slim, for configs without
// conv_hyperparams: truncated normal 0.09, L2 weight 4e-5 on all but depthwise weights, ReLU6, and
// batch norm with the defaults of BatchNormHyperparams.
LayerHyperparams SlimHyperparams();

// Returns TensorFlow's tf.variance_scaling_initializer(scale): normal, truncated at two deviations,
// where the variance after the truncation is scale / fan_in. In slim's initializer of the same
// name, which a config chooses, the variance before the truncation is 1.3 * factor / fan_in.
config::WeightInitializer ScaledNormalInitializer(double scale);

// Returns TensorFlow's he_normal initializer (He et al., ICCV 2015): the one above with a scale
// of 2.
config::WeightInitializer HeNormalInitializer();

// Returns the activation of layers that are ReLU6 in TensorFlow whatever the config says: kSwish if
// the config asks for it, which TensorFlow does not have, and otherwise kRelu6.
ActivationFunction Relu6UnlessSwish(ActivationFunction activation);

// Converts `hyperparams`, a part of a valid config. If the message has no batch_norm, the result
// has none either. If it has no initializer, the result has slim's.
LayerHyperparams ResolveHyperparams(const config::Hyperparams& hyperparams);

// As ResolveHyperparams, but depthwise weights are regularised unless `hyperparams` says no, as in
// slim's separable_conv2d. For a detector's layers.
LayerHyperparams ResolveDetectorHyperparams(const config::Hyperparams& hyperparams);

// Returns the initializer of a weight tensor of shape [..., in, out]; constant 0 if none is set.
//
// Variance scaling follows slim. With r = the product of the leading dimensions, n is the fan in
// (r * in), the fan out (r * out) or the mean of both. Depthwise weights [k, k, c, 1] thus have a
// fan in of k*k*c. The values are uniform within +-sqrt(3 factor / n), or normal with a deviation
// of sqrt(1.3 factor / n), truncated at two deviations.
Initializer ResolveInitializer(const config::WeightInitializer& initializer,
                               const std::vector<int64_t>& shape);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_HYPERPARAMS_H_
