// Compares the whole network's gradient with central differences, in double on the reference
// operators.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

#include "common/base/random.h"
#include "kernels/cpu/reference_operators.h"
#include "tests/testkit/model/test_network.h"
#include "tests/testkit/model/tiny_model.h"
#include "tests/testkit/ssd_test_config.h"

namespace pushpull {
namespace {

class TinyNetwork : public TestNetwork<double> {
 public:
  explicit TinyNetwork(NetworkSpec network,
                       const std::function<void(std::vector<VariableSpec>*)>& change = {})
      : TestNetwork(network, MakeLayout(network, change), MakeReferenceOperators<double>(), 3) {
    // Random values instead of the special values 0 and 1 of initial biases and batch norms.
    for (int64_t i = 0; i < layout.num_variables(); ++i) {
      CounterRandom random(3, StableHash(layout.variables()[i].name));
      for (int64_t k = 0; k < layout.num_elements(i); ++k) {
        variables[layout.offset(i) + k] += 0.2 * random.NextFloat();
      }
    }
  }

  // Bounds the largest error of each variable's gradient against central differences, relative to
  // the variable's largest entry.
  void ExpectGradientMatches(const TestBatch<double>& batch, uint64_t seed) {
    Step(batch.view(), seed);
    const std::vector<double> analytic = gradient;
    for (int64_t i = 0; i < layout.num_variables(); ++i) {
      const VariableSpec& variable = layout.variables()[i];
      if (variable.kind != VariableKind::kTrainable || variable.frozen) continue;
      double scale = 1e-3;
      for (int64_t k = 0; k < layout.num_elements(i); ++k) {
        scale = std::max(scale, std::abs(analytic[layout.offset(i) + k]));
      }
      for (int64_t k = 0; k < layout.num_elements(i); ++k) {
        const int64_t element = layout.offset(i) + k;
        EXPECT_NEAR(analytic[element], Difference(batch, seed, element), 1e-5 * scale)
            << variable.name << "[" << k << "], largest entry " << scale;
      }
    }
  }

 private:
  static VariableLayout MakeLayout(const NetworkSpec& network,
                                   const std::function<void(std::vector<VariableSpec>*)>& change) {
    std::vector<VariableSpec> variables = network.variables;
    if (change) change(&variables);
    return *VariableLayout::Create(std::move(variables));
  }

  double Difference(const TestBatch<double>& batch, uint64_t seed, int64_t element) {
    constexpr double kStep = 1e-6;
    const double value = variables[element];
    variables[element] = value + kStep;
    const double above = Step(batch.view(), seed).loss;
    variables[element] = value - kStep;
    const double below = Step(batch.view(), seed).loss;
    variables[element] = value;
    return (above - below) / (2 * kStep);
  }
};

TEST(NetworkGradientTest, MatchesCentralDifferences) {
  TinyNetwork tiny(MakeTinyNetwork());
  tiny.ExpectGradientMatches(TestBatch<double>(tiny.spec.input, 3, 3), 1);
}

TEST(NetworkGradientTest, MatchesWithFrozenBatchNorm) {
  TinyNetwork tiny(MakeTinyNetwork({.freeze_batch_norm = true}));
  tiny.ExpectGradientMatches(TestBatch<double>(tiny.spec.input, 3, 2), 1);
}

TEST(NetworkGradientTest, MatchesWithDropoutBeforeBothDenseLayers) {
  TinyNetwork tiny(MakeTinyNetwork({.keep_hidden = 0.7f, .keep_classes = 0.6f}));
  const TestBatch<double> batch(tiny.spec.input, 3, 3);
  tiny.ExpectGradientMatches(batch, 5);
  // The seed decides which values dropout removes.
  const double first = tiny.Step(batch.view(), 5).loss;
  EXPECT_EQ(first, tiny.Step(batch.view(), 5).loss);
  EXPECT_NE(first, tiny.Step(batch.view(), 6).loss);
}

TEST(NetworkGradientTest, MatchesOnOneSample) {
  TinyNetwork tiny(MakeTinyNetwork());
  tiny.ExpectGradientMatches(TestBatch<double>(tiny.spec.input, 3, 1), 1);
}

// A network from a config is too large for a difference per element, so each variable moves along
// one random direction: each whose name ends in `ending`.
void ExpectMatchesAlongRandomDirections(const config::TrainEvalPipelineConfig& config,
                                        const std::vector<std::vector<LabeledBox>>& objects = {},
                                        absl::string_view ending = "") {
  TestNetwork<double> network(config, MakeReferenceOperators<double>(), 3);
  const TestBatch<double> images(network.spec.input, 10, 3);
  const std::vector<absl::Span<const LabeledBox>> boxes(objects.begin(), objects.end());
  ImageBatch<double> batch = images.view();
  if (!boxes.empty()) batch.objects = boxes.data();
  network.Step(batch);
  const std::vector<double> analytic = network.gradient;
  const std::vector<double> variables = network.variables;
  for (int64_t i = 0; i < network.layout.num_variables(); ++i) {
    const VariableSpec& variable = network.layout.variables()[i];
    if (variable.kind != VariableKind::kTrainable) continue;
    if (!absl::EndsWith(variable.name, ending)) continue;
    CounterRandom random(5, static_cast<uint64_t>(i));
    std::vector<double> direction(network.layout.num_elements(i));
    double expected = 0.0;
    for (size_t k = 0; k < direction.size(); ++k) {
      direction[k] = random.NextNormal();
      expected += direction[k] * analytic[network.layout.offset(i) + k];
    }
    const auto loss_at = [&](double step) {
      network.variables = variables;
      for (size_t k = 0; k < direction.size(); ++k) {
        network.variables[network.layout.offset(i) + k] += step * direction[k];
      }
      return network.Step(batch).loss;
    };
    // Batch norms over few values make the loss curve strongly, so the step is small.
    constexpr double kStep = 1e-8;
    const double difference = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    EXPECT_NEAR(difference, expected, 1e-4 + 1e-5 * std::abs(expected)) << variable.name;
  }
}

TEST(NetworkGradientTest, MatchesAlongRandomDirectionsWithSwishFromTheConfig) {
  ExpectMatchesAlongRandomDirections(
      MakeTestConfig("feature_extractor { depth_multiplier: 0.1 conv_hyperparams { activation: "
                     "SWISH batch_norm { scale: true } } }"));
}

TEST(NetworkGradientTest, MatchesAlongRandomDirectionsWithoutBatchNorm) {
  ExpectMatchesAlongRandomDirections(MakeTestConfig(
      "image_resizer { fixed_shape_resizer { height: 64 width: 64 } } "
      "feature_extractor { type: 'vgg_a' depth_multiplier: 0.02 min_depth: 4 conv_hyperparams { "
      "activation: SWISH initializer { variance_scaling_initializer {} } } } "
      "dropout_keep_probability: 0.7"));
}

// The extra layers, or the feature pyramid, and the layers before the predictors have biases.
TEST(NetworkGradientTest, MatchesInADetectorWithBatchNormInTheBackboneAlone) {
  const std::vector<std::vector<LabeledBox>> objects = {
      {{{0.1f, 0.1f, 0.5f, 0.45f}, 0, 1.0f}, {{0.5f, 0.3f, 0.9f, 0.95f}, 2, 1.0f}},
      {{{0.05f, 0.02f, 0.97f, 0.99f}, 1, 1.0f}},
      {}};
  for (const std::string type : {"ssd_mobilenet_v1", "ssd_mobilenet_v1_fpn"}) {
    SCOPED_TRACE(type);
    config::TrainEvalPipelineConfig config = MakeSsdTestConfig(type, SsdTestSettings(type, 64));
    config::Ssd& ssd = *config.mutable_model()->mutable_ssd();
    ssd.set_num_classes(3);
    config::SsdFeatureExtractor& extractor = *ssd.mutable_feature_extractor();
    extractor.set_depth_multiplier(0.05);
    extractor.set_min_depth(4);
    config::BoxPredictor& predictor = *ssd.mutable_box_predictor();
    config::Hyperparams* before_predictor = nullptr;
    if (predictor.has_weight_shared_convolutional_box_predictor()) {
      before_predictor =
          predictor.mutable_weight_shared_convolutional_box_predictor()->mutable_conv_hyperparams();
    } else {
      config::ConvolutionalBoxPredictor& layers = *predictor.mutable_convolutional_box_predictor();
      layers.set_num_layers_before_predictor(1);
      layers.set_max_depth(8);
      before_predictor = layers.mutable_conv_hyperparams();
    }
    // The initial biases are 0, where ReLU has no derivative.
    for (config::Hyperparams* layers : {extractor.mutable_conv_hyperparams(), before_predictor}) {
      layers->clear_batch_norm();
      layers->set_activation(config::Hyperparams::SWISH);
    }
    ExpectMatchesAlongRandomDirections(config, objects, "/biases");
  }
}

TEST(NetworkGradientTest, FrozenVariablesHaveZeroGradientAndTheRestIsUnchanged) {
  const TestBatch<double> batch(MakeTinyNetwork().input, 3, 3);
  TinyNetwork free(MakeTinyNetwork());
  free.Step(batch.view());
  // Freezes everything below the second block and single variables above it.
  TinyNetwork frozen(MakeTinyNetwork(), [](std::vector<VariableSpec>* variables) {
    for (VariableSpec& variable : *variables) {
      if (variable.kind != VariableKind::kTrainable) continue;
      const std::string& name = variable.name;
      variable.frozen = name.starts_with("T/stem") || name.starts_with("T/b0") ||
                        name == "T/b1/expand/weights" || name == "T/b1/expand/BatchNorm/beta" ||
                        name == "T/b2/project/BatchNorm/gamma" || name == "T/classes/biases";
    }
  });
  frozen.Step(batch.view());
  for (int64_t i = 0; i < free.layout.num_variables(); ++i) {
    const VariableSpec& variable = frozen.layout.variables()[i];
    const std::vector<double> expected = variable.frozen
                                             ? std::vector<double>(free.layout.num_elements(i), 0.0)
                                             : free.Part(free.gradient, variable.name);
    EXPECT_EQ(frozen.Part(frozen.gradient, variable.name), expected) << variable.name;
  }
}

}  // namespace
}  // namespace pushpull
