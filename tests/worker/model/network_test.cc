#include "worker/model/network.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/cpu/reference_operators.h"
#include "tests/testkit/model/test_network.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

class NetworkTest : public ::testing::Test {
 protected:
  static std::unique_ptr<TestNetwork<float>> Make(const config::TrainEvalPipelineConfig& config,
                                                  int64_t max_batch) {
    return std::make_unique<TestNetwork<float>>(config, MakeReferenceOperators<float>(), max_batch);
  }
  static std::unique_ptr<TestNetwork<float>> Make(const std::string& classifier,
                                                  int64_t max_batch) {
    return Make(MakeTestConfig(classifier), max_batch);
  }
};

TEST_F(NetworkTest, TheCallbackAnnouncesFinalTailsFromTheEndToTheFront) {
  const auto test = Make("", 2);
  const TestBatch<float> batch(test->spec.input, 10, 2);
  std::vector<int64_t> firsts;
  std::vector<std::vector<float>> tails;
  const auto result = test->network->ForwardBackward(
      test->variables, batch.view(), 1, absl::MakeSpan(test->gradient), [&](int64_t first) {
        firsts.push_back(first);
        tails.emplace_back(test->gradient.begin() + first, test->gradient.end());
      });
  ASSERT_TRUE(result.ok()) << result.status();
  // One call per layer with variables.
  ASSERT_EQ(firsts.size(), 53u);
  EXPECT_EQ(firsts.back(), 0);
  EXPECT_TRUE(std::is_sorted(firsts.rbegin(), firsts.rend()));
  EXPECT_EQ(std::adjacent_find(firsts.begin(), firsts.end()), firsts.end());
  for (size_t i = 0; i < firsts.size(); ++i) {
    EXPECT_EQ(tails[i],
              std::vector<float>(test->gradient.begin() + firsts[i], test->gradient.end()))
        << "tail from " << firsts[i] << " changed after it was announced";
  }
}

// The forward pass waits for the first weights, and the server waits for the last gradients.
TEST_F(NetworkTest, PiecesOfAStepAreSmallerAtTheFront) {
  const auto config = MakeTestConfig("");
  const VariableLayout layout = BuildVariableLayout(config);
  const auto operators = MakeReferenceOperators<float>();
  const auto network =
      Network<float>::Create(BuildNetworkSpec(config.model()), layout, operators.get(), {});
  ASSERT_TRUE(network.ok()) << network.status();
  constexpr int64_t kElements = 65536;
  const int64_t total = layout.total_elements();
  ASSERT_GT(total, 4 * kElements);

  const std::vector<int64_t> stops = (*network)->ForwardStops(kElements);
  const std::vector<int64_t> front = {kElements / 8, kElements / 4, kElements / 2, kElements};
  ASSERT_GT(stops.size(), front.size());
  EXPECT_EQ(std::vector<int64_t>(stops.begin(), stops.begin() + front.size()), front);
  for (size_t i = front.size(); i < stops.size(); ++i) {
    EXPECT_GT(stops[i], stops[i - 1]);
    EXPECT_TRUE(stops[i] % kElements == 0 || stops[i] == total) << stops[i];
  }
  EXPECT_EQ(stops.back(), total);

  const auto test = Make("", 1);
  const TestBatch<float> batch(test->spec.input, 10, 1);
  Network<float>::Step step;
  step.variables = test->variables.data();
  step.batch = {.images = batch.images.data(), .samples = 1, .labels = batch.labels.data()};
  step.gradient = test->gradient.data();
  ObjectiveResult result;
  step.result = &result;
  const uint64_t seed = 1;
  step.dropout_seed = &seed;
  (*network)->BeginStep(step);
  (*network)->ContinueForward(total);
  int64_t end = total;
  int64_t last_end = total;
  while (end > 0) {
    const int64_t first = (*network)->ContinueStep(kElements);
    EXPECT_LT(first, end);
    if (first > 0) {
      EXPECT_GE(end - first, std::min(kElements, std::max(end / 2, kElements / 16))) << end;
    }
    last_end = end;
    end = first;
  }
  EXPECT_LT(last_end, kElements / 8) << "the last piece must be small";
}

TEST_F(NetworkTest, WritesEveryElementAndZeroPadding) {
  const auto test = Make("num_channels: 1", 2);
  const TestBatch<float> batch(test->spec.input, 10, 2);
  test->Step(batch.view());
  std::vector<bool> padding(test->layout.total_elements(), true);
  for (int64_t i = 0; i < test->layout.num_variables(); ++i) {
    for (int64_t k = 0; k < test->layout.num_elements(i); ++k) {
      const int64_t element = test->layout.offset(i) + k;
      padding[element] = false;
      ASSERT_TRUE(std::isfinite(test->gradient[element]) && test->gradient[element] != -12345.0f)
          << test->layout.variables()[i].name << "[" << k << "]";
    }
  }
  for (size_t i = 0; i < padding.size(); ++i) {
    ASSERT_TRUE(!padding[i] || test->gradient[i] == 0.0f) << i;
  }
}

TEST_F(NetworkTest, ResultsAreRepeatableAndIndependentOfEarlierBatches) {
  const auto test = Make("", 5);
  const TestBatch<float> batch(test->spec.input, 10, 5);
  const StepResult first = test->Step(batch.view());
  const std::vector<float> gradient = test->gradient;
  test->Step(TestBatch<float>(test->spec.input, 10, 1, 4).view());
  ASSERT_TRUE(test->network->Evaluate(test->variables, batch.view(), 3).ok());
  const StepResult again = test->Step(batch.view());
  EXPECT_EQ(first.loss, again.loss);
  EXPECT_EQ(gradient, test->gradient);
  // A network built for exactly this batch size has another memory plan but must give the same
  // result.
  const auto smaller = Make("", 1);
  const auto larger = Make("", 8);
  const ImageBatch<float> one = batch.part(2, 1, test->spec.input);
  EXPECT_EQ(smaller->Step(one).loss, larger->Step(one).loss);
  EXPECT_EQ(smaller->gradient, larger->gradient);
}

TEST_F(NetworkTest, GradientsOfMovingStatisticsAreMeanAndUnbiasedVariance) {
  const auto test = Make("", 3);
  const TestBatch<float> batch(test->spec.input, 10, 3);
  test->Step(batch.view());
  // Computes channel 0 of the stem directly. A 3x3 kernel at stride 2 on 32x32 pads one row and one
  // column at the end.
  const std::vector<float> weights = test->Part(test->variables, "MobilenetV2/Conv/weights");
  const int channels = test->spec.nodes[0].shape.channels;
  std::vector<double> outputs;
  for (int n = 0; n < 3; ++n) {
    for (int y = 0; y < 16; ++y) {
      for (int x = 0; x < 16; ++x) {
        double sum = 0.0;
        for (int tap = 0; tap < 27; ++tap) {
          const int row = 2 * y + tap / 9, column = 2 * x + tap / 3 % 3, c = tap % 3;
          if (row >= 32 || column >= 32) continue;
          sum += double{batch.images[((n * 32 + row) * 32 + column) * 3 + c]} *
                 weights[tap * channels];
        }
        outputs.push_back(sum);
      }
    }
  }
  double mean = 0.0, squares = 0.0;
  for (const double value : outputs) mean += value / outputs.size();
  for (const double value : outputs) squares += (value - mean) * (value - mean);
  EXPECT_NEAR(test->Part(test->gradient, "MobilenetV2/Conv/BatchNorm/moving_mean")[0], mean, 1e-5);
  EXPECT_NEAR(test->Part(test->gradient, "MobilenetV2/Conv/BatchNorm/moving_variance")[0],
              squares / (outputs.size() - 1), 1e-5);
}

TEST_F(NetworkTest, OneSampleOnOnePixelHasVarianceZero) {
  const auto test = Make("", 1);
  test->Step(TestBatch<float>(test->spec.input, 10, 1).view());
  // The last feature map is 1x1, so N is 1 and there is no N - 1 to divide by.
  for (const float value :
       test->Part(test->gradient, "MobilenetV2/Conv_1/BatchNorm/moving_variance")) {
    ASSERT_EQ(value, 0.0f);
  }
}

TEST_F(NetworkTest, GradientIsTheMeanOverSamplesWhenBatchNormIsFrozen) {
  const auto test = Make("freeze_batchnorm: true", 5);
  const TestBatch<float> batch(test->spec.input, 10, 5);
  const double whole_loss = test->Step(batch.view()).loss;
  const std::vector<float> whole = test->gradient;
  const double first_loss = test->Step(batch.part(0, 2, test->spec.input)).loss;
  const std::vector<float> first = test->gradient;
  const double second_loss = test->Step(batch.part(2, 3, test->spec.input)).loss;
  EXPECT_NEAR(whole_loss, 0.4 * first_loss + 0.6 * second_loss, 1e-5 * whole_loss);
  double error = 0.0, norm = 0.0;
  for (size_t i = 0; i < whole.size(); ++i) {
    error += std::pow(whole[i] - (0.4 * first[i] + 0.6 * test->gradient[i]), 2);
    norm += std::pow(whole[i], 2);
  }
  EXPECT_GT(norm, 0.0);
  EXPECT_LT(std::sqrt(error / norm), 1e-5);
  for (int64_t i = 0; i < test->layout.num_variables(); ++i) {
    if (test->layout.variables()[i].kind != VariableKind::kMovingStatistic) continue;
    for (int64_t k = 0; k < test->layout.num_elements(i); ++k) {
      ASSERT_EQ(whole[test->layout.offset(i) + k], 0.0f) << test->layout.variables()[i].name;
    }
  }
}

TEST_F(NetworkTest, AFrozenNetworkEvaluatesAndAnnouncesZeros) {
  const auto test = Make(MakeTestConfig("freeze_batchnorm: true", "freeze_variables: '.*'"), 2);
  const TestBatch<float> batch(test->spec.input, 10, 2);
  std::vector<int64_t> firsts;
  const auto result = test->network->ForwardBackward(
      test->variables, batch.view(), 1, absl::MakeSpan(test->gradient),
      [&](int64_t first) { firsts.push_back(first); });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->loss, 0.0);
  EXPECT_EQ(firsts, std::vector<int64_t>{0});
  EXPECT_EQ(test->gradient, std::vector<float>(test->gradient.size(), 0.0f));
}

TEST_F(NetworkTest, EvaluateAgreesWithTrainingWithFrozenStatistics) {
  const auto test = Make("freeze_batchnorm: true", 4);
  const TestBatch<float> batch(test->spec.input, 10, 4);
  const StepResult trained = test->Step(batch.view());
  const auto evaluated = test->network->Evaluate(test->variables, batch.view(), 100);
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_EQ(evaluated->loss, trained.loss);
  EXPECT_EQ(evaluated->correct_top1, trained.correct_top1);
  EXPECT_EQ(evaluated->correct_top5, trained.correct_top5);
  EXPECT_EQ(evaluated->samples, 4);

  ASSERT_TRUE(test->network->Infer(test->variables, batch.view(), 100).ok());
  ASSERT_EQ(test->network->outputs().size(), 1u);
  const float* const logits = test->network->outputs()[0];
  double loss = 0.0;
  for (int i = 0; i < 4; ++i) {
    double sum = 0.0;
    for (int c = 0; c < 10; ++c) sum += std::exp(double{logits[i * 10 + c]});
    loss += (std::log(sum) - logits[i * 10 + batch.labels[i]]) / 4.0;
  }
  EXPECT_NEAR(loss, evaluated->loss, 1e-5);
}

TEST_F(NetworkTest, EvaluationHasNoDropoutAndNoLabelSmoothing) {
  const auto plain = Make("", 2);
  const auto noisy = Make("dropout_keep_probability: 0.5 label_smoothing: 0.2", 2);
  const TestBatch<float> batch(plain->spec.input, 10, 2);
  EXPECT_EQ(plain->network->Evaluate(plain->variables, batch.view(), 1)->loss,
            noisy->network->Evaluate(noisy->variables, batch.view(), 1)->loss);
  EXPECT_NE(plain->Step(batch.view()).loss, noisy->Step(batch.view()).loss);
}

TEST_F(NetworkTest, BiasCorrectionRecoversTheStatisticsOfAConstantStream) {
  const std::string norm =
      "feature_extractor { conv_hyperparams { activation: RELU_6 batch_norm { decay: 0.9 scale: "
      "true ";
  const auto corrected = Make(norm + "bias_corrected_moving_statistics: true } } }", 2);
  const auto plain = Make(norm + "} } }", 2);
  const TestBatch<float> batch(plain->spec.input, 10, 2);
  // After five updates with the same statistics s, the moving statistics are s * (1 - d^5) +
  // initial * d^5.
  std::vector<float> settled = plain->variables;
  const double left = std::pow(0.9f, 5);
  for (int64_t i = 0; i < plain->layout.num_variables(); ++i) {
    const VariableSpec& variable = plain->layout.variables()[i];
    if (variable.kind != VariableKind::kMovingStatistic) continue;
    const double initial = variable.initializer.mean;
    for (int64_t k = 0; k < plain->layout.num_elements(i); ++k) {
      const int64_t element = plain->layout.offset(i) + k;
      settled[element] = 0.3f + 0.01f * (k % 7);
      corrected->variables[element] =
          static_cast<float>(settled[element] * (1.0 - left) + initial * left);
    }
  }
  const double expected = plain->network->Evaluate(settled, batch.view(), 5)->loss;
  const double got = corrected->network->Evaluate(corrected->variables, batch.view(), 5)->loss;
  EXPECT_NEAR(got, expected, 1e-4 * expected);
  // Without the option, the same variables give another loss. Before the first update, nothing is
  // divided.
  EXPECT_NE(plain->network->Evaluate(corrected->variables, batch.view(), 5)->loss, got);
  EXPECT_EQ(plain->network->Evaluate(corrected->variables, batch.view(), 0)->loss,
            corrected->network->Evaluate(corrected->variables, batch.view(), 0)->loss);
}

TEST_F(NetworkTest, TopFiveCountsAreWithinBounds) {
  const auto test = Make("", 4);
  const StepResult result = test->Step(TestBatch<float>(test->spec.input, 10, 4).view());
  EXPECT_LE(result.correct_top1, result.correct_top5);
  EXPECT_LE(result.correct_top5, result.samples);
  ASSERT_EQ(result.components.size(), 1u);
  EXPECT_EQ(result.components[0].name, "classification_loss");
  EXPECT_EQ(result.components[0].value, result.loss);
}

TEST_F(NetworkTest, RefusesWrongArguments) {
  const auto test = Make("", 2);
  TestBatch<float> batch(test->spec.input, 10, 3);
  const auto error = [&](absl::Span<const float> variables, const ImageBatch<float>& images,
                         absl::Span<float> gradient) {
    const absl::Status status =
        test->network->ForwardBackward(variables, images, 1, gradient, [](int64_t) {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto gradient = absl::MakeSpan(test->gradient);
  EXPECT_THAT(error(test->variables, batch.view(), gradient),
              HasSubstr("3 samples, expected 1 to 2"));
  EXPECT_THAT(error(test->variables, batch.part(0, 0, test->spec.input), gradient),
              HasSubstr("0 samples"));
  EXPECT_THAT(error({}, batch.part(0, 2, test->spec.input), gradient),
              HasSubstr("got 0 elements of variables"));
  EXPECT_THAT(error(test->variables, batch.part(0, 2, test->spec.input), {}),
              HasSubstr("got 0 elements of gradient"));
  batch.labels[1] = 10;
  EXPECT_THAT(error(test->variables, batch.part(0, 2, test->spec.input), gradient),
              HasSubstr("sample 1 of the batch has label 10, expected 0 to 9"));
}

TEST_F(NetworkTest, RefusesInvalidNetworks) {
  const auto test = Make("", 1);
  const auto create = [&](const NetworkSpec& spec, int64_t max_batch) {
    return std::string(
        MakeHostRunner<float>(spec, test->layout, test->operators.get(), {max_batch, true})
            .status()
            .message());
  };
  EXPECT_THAT(create(test->spec, 0), HasSubstr("max_batch is 0"));
  EXPECT_THAT(create(test->spec, 4'000'000'000), HasSubstr("expected at most 65535"));
  const NetworkSpec wider = BuildNetworkSpec(MakeTestConfig("num_classes: 12").model());
  EXPECT_THAT(create(wider, 1), HasSubstr("MobilenetV2/Logits/Conv2d_1c_1x1/weights"));
  NetworkSpec broken = test->spec;
  broken.nodes[4].inputs = {7};
  EXPECT_THAT(create(broken, 1), HasSubstr("reads a node that does not come before it"));

  const auto inference =
      MakeHostRunner<float>(test->spec, test->layout, test->operators.get(), {1, false});
  ASSERT_TRUE(inference.ok());
  const TestBatch<float> batch(test->spec.input, 10, 1);
  EXPECT_EQ((*inference)
                ->ForwardBackward(test->variables, batch.view(), 1, absl::MakeSpan(test->gradient),
                                  [](int64_t) {})
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*inference)->Evaluate(test->variables, batch.view(), 0)->loss,
            test->network->Evaluate(test->variables, batch.view(), 0)->loss);
}

}  // namespace
}  // namespace pushpull
