#include "tests/common/model/families/family_testing.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "gtest/gtest.h"

#include "common/model/classifier.h"
#include "common/model/variable_layout.h"

namespace pushpull {

config::Classifier MakeClassifier(const std::string& type, int size, double width,
                                  int num_classes) {
  config::Classifier classifier;
  classifier.set_num_classes(num_classes);
  auto* resizer = classifier.mutable_image_resizer()->mutable_fixed_shape_resizer();
  resizer->set_height(size);
  resizer->set_width(size);
  classifier.mutable_feature_extractor()->set_type(type);
  classifier.mutable_feature_extractor()->set_depth_multiplier(width);
  return classifier;
}

NetworkSpec BuildChecked(const config::Classifier& classifier) {
  NetworkSpec network = BuildClassifier(classifier);
  EXPECT_EQ(CheckNetwork(network), absl::OkStatus());
  return network;
}

NetworkSpec BuildChecked(const std::string& type, int size, double width) {
  return BuildChecked(MakeClassifier(type, size, width));
}

NetworkSpec FinishBody(NetworkBuilder builder, int last) {
  builder.AddNode("AvgPool", op::GlobalAveragePool(), {last});
  builder.network().num_classes = builder.shape(last).channels;
  NetworkSpec network = std::move(builder).Finish();
  EXPECT_EQ(CheckNetwork(network), absl::OkStatus());
  return network;
}

int64_t CountParameters(const NetworkSpec& network) {
  return VariableLayout::Create(network.variables)->num_trainable_parameters();
}

int64_t CountElements(const NetworkSpec& network) {
  const VariableLayout layout = *VariableLayout::Create(network.variables);
  int64_t count = 0;
  for (int64_t i = 0; i < layout.num_variables(); ++i) count += layout.num_elements(i);
  return count;
}

int CountActivations(const NetworkSpec& network, ActivationFunction function) {
  return static_cast<int>(
      std::count_if(network.nodes.begin(), network.nodes.end(), [function](const Node& node) {
        const auto* const activation = std::get_if<op::Activation>(&node.op);
        return activation != nullptr && activation->function == function;
      }));
}

std::vector<int64_t> ShapeOf(const NetworkSpec& network, const std::string& name) {
  for (const VariableSpec& variable : network.variables) {
    if (variable.name == name) return variable.shape;
  }
  return {};
}

}  // namespace pushpull
