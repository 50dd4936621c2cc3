// A network with everything that it needs to run, and random inputs.
#ifndef PUSHPULL_TESTS_TESTKIT_MODEL_TEST_NETWORK_H_
#define PUSHPULL_TESTS_TESTKIT_MODEL_TEST_NETWORK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "glog/logging.h"
#include "google/protobuf/text_format.h"

#include "common/base/random.h"
#include "common/model/initializers.h"
#include "common/model/model_layout.h"
#include "worker/model/host_runner.h"

namespace pushpull {

// A pipeline config of a small MobileNetV2. `classifier` and `train_config` are protobuf text.
inline config::TrainEvalPipelineConfig MakeTestConfig(const std::string& classifier,
                                                      const std::string& train_config = "") {
  config::TrainEvalPipelineConfig config;
  const std::string base =
      "model { classifier { num_classes: 10 "
      "image_resizer { fixed_shape_resizer { height: 32 width: 32 } } "
      "feature_extractor { type: 'mobilenet_v2' depth_multiplier: 0.35 } } }";
  const std::string changes =
      "model { classifier { " + classifier + " } } train_config { " + train_config + " }";
  for (const std::string& text : {base, changes}) {
    CHECK(google::protobuf::TextFormat::MergeFromString(text, &config)) << text;
  }
  return config;
}

template <typename T>
struct TestBatch {
  TestBatch(const FeatureShape& shape, int num_classes, int64_t samples, int phase = 0)
      : images(samples * shape.num_elements()), labels(samples) {
    CounterRandom random(phase, 11);
    for (T& value : images) value = static_cast<T>(2.0f * random.NextFloat() - 1.0f);
    for (int64_t i = 0; i < samples; ++i) {
      labels[i] = static_cast<int32_t>((3 * i + 1 + phase) % num_classes);
    }
  }
  ImageBatch<T> view() const {
    return {images.data(), labels.data(), static_cast<int64_t>(labels.size())};
  }
  ImageBatch<T> part(int64_t first, int64_t count, const FeatureShape& shape) const {
    return {images.data() + first * shape.num_elements(), labels.data() + first, count};
  }
  std::vector<T> images;
  std::vector<int32_t> labels;
};

// T is the type of activations. Variables, gradients and images are of type P.
template <typename T>
struct TestNetwork {
  using P = ParameterOf<T>;

  TestNetwork(NetworkSpec network_spec, VariableLayout variable_layout,
              std::unique_ptr<Operators<T>> ops, int64_t max_batch)
      : spec(std::move(network_spec)),
        layout(std::move(variable_layout)),
        operators(std::move(ops)),
        gradient(layout.total_elements(), P(-12345)) {
    auto created = MakeHostRunner<T>(spec, layout, operators.get(), {max_batch, true});
    CHECK(created.ok()) << created.status();
    network = std::move(created).value();
    std::vector<float> initial(layout.total_elements());
    InitializeVariables(layout, 7, absl::MakeSpan(initial));
    variables.assign(initial.begin(), initial.end());
  }

  TestNetwork(const config::TrainEvalPipelineConfig& config, std::unique_ptr<Operators<T>> ops,
              int64_t max_batch)
      : TestNetwork(BuildNetworkSpec(config.model()), BuildVariableLayout(config), std::move(ops),
                    max_batch) {}

  StepResult Step(const ImageBatch<P>& batch, uint64_t seed = 1) {
    auto result =
        network->ForwardBackward(variables, batch, seed, absl::MakeSpan(gradient), [](int64_t) {});
    CHECK(result.ok()) << result.status();
    return *result;
  }

  // Returns the elements of a flat vector that belong to one variable.
  std::vector<P> Part(const std::vector<P>& flat, const std::string& name) const {
    const auto i = layout.Find(name);
    CHECK(i.has_value()) << name;
    return {flat.begin() + layout.offset(*i),
            flat.begin() + layout.offset(*i) + layout.num_elements(*i)};
  }

  const NetworkSpec spec;
  const VariableLayout layout;
  std::unique_ptr<Operators<T>> operators;
  std::unique_ptr<BasicNetworkRunner<P>> network;
  std::vector<P> variables;
  std::vector<P> gradient;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_MODEL_TEST_NETWORK_H_
