// Random networks: up to twelve operators with shared readers, sums, products and mixed
// activations, small enough for central differences.
#ifndef PUSHPULL_TESTS_TESTKIT_MODEL_RANDOM_GRAPH_H_
#define PUSHPULL_TESTS_TESTKIT_MODEL_RANDOM_GRAPH_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/random.h"
#include "tests/testkit/model/tiny_model.h"

namespace pushpull {

class RandomGraph {
 public:
  static constexpr int kClasses = 3;

  explicit RandomGraph(uint64_t seed)
      : random_(seed, 77), builder_("Random", {6, 5, 2}, /*freeze_batch_norm=*/seed % 4 == 0) {}

  // A classifier of kClasses classes.
  NetworkSpec Build() && {
    const int operators = 3 + Below(10);
    for (int i = 0; i < operators; ++i) AddOperator();
    Close();
    builder_.network().num_classes = kClasses;
    return std::move(builder_).Finish();
  }

 private:
  int Below(int bound) { return static_cast<int>(random_.NextBelow(bound)); }
  // A name that no other node has, whatever it goes on with.
  std::string Name(const char* what) { return absl::StrCat("R", counter_++, "_", what); }
  ActivationFunction AnyActivation() {
    return activations_[Below(static_cast<int>(activations_.size()))];
  }
  const FeatureShape& Shape(int node) const { return builder_.shape(node); }
  bool IsPixel(int node) const { return Shape(node).height == 1 && Shape(node).width == 1; }

  // The image or any node; prefers recent ones.
  int AnyValue() {
    const int count = static_cast<int>(values_.size());
    if (count == 0 || Below(8) == 0) return Node::kImage;
    return values_[Below(3) == 0 ? Below(count) : count - 1 - Below(std::min(count, 3))];
  }

  // Values other than `node` that `fits` accepts.
  template <typename Fits>
  std::vector<int> Others(int node, Fits fits) const {
    std::vector<int> result;
    for (const int value : values_) {
      if (value != node && fits(Shape(value))) result.push_back(value);
    }
    return result;
  }

  void AddOperator() {
    const int input = AnyValue();
    const FeatureShape& shape = Shape(input);
    LayerRequest layer{Name("layer"), input, 1 + 2 * Below(2), 1 + Below(2), 2 + Below(3)};
    if (shape.height < 3 || shape.width < 3) layer.stride = 1;
    layer.activation = AnyActivation();
    const bool may_shrink = shape.height >= layer.kernel && shape.width >= layer.kernel;
    layer.valid_padding = may_shrink && Below(5) == 0;
    switch (Below(10)) {
      case 0:
        Share("/normalized", &layer);
        return Keep(builder_.AddNormalized(layer, TinyHyperparams()));
      case 1:
        if (shape.channels <= 6) layer.repetitions = 1 + Below(2);
        return Keep(builder_.AddNormalizedDepthwise(layer, TinyHyperparams()));
      case 2:
        Share("/biased", &layer);
        return Keep(builder_.AddBiased(layer, TinyHyperparams()));
      case 3:
        return Keep(builder_.AddNode(Name("activation"), op::Activation{AnyActivation()}, {input}));
      case 4:
        return AddSum(input);
      case 5:
        return AddProduct(input);
      case 6:
        return AddConcat(input);
      case 7:
        return AddPool(input);
      case 8:
        if (shape.channels > 6) return;
        return Keep(builder_.AddNode(Name("repeat"), op::RepeatChannels{2 + Below(2)}, {input}));
      default:
        if (shape.height > 3 || shape.width > 3) return AddBlock(input);
        return Keep(builder_.AddNode(Name("upsample"), op::Upsample{2}, {input}));
    }
  }

  // Sometimes gives the layer the weights of all layers with the same shape of weights.
  void Share(const char* kind, LayerRequest* layer) {
    layer->separable = Below(4) == 0;
    if (Below(2) == 0) return;
    layer->shared_scope = absl::StrCat("Shared_", layer->kernel, "_", Shape(layer->input).channels,
                                       "_", layer->depth, layer->separable ? "s" : "", kind);
  }

  void AddSum(int input) {
    const FeatureShape shape = Shape(input);
    const std::vector<int> others =
        Others(input, [&](const FeatureShape& other) { return other == shape; });
    const int other = others.empty() ? input : others[Below(static_cast<int>(others.size()))];
    Keep(builder_.AddNode(Name("sum"), op::Add(), {input, other}));
  }

  // Squeeze and excitation without its convolutions.
  void AddProduct(int input) {
    const FeatureShape shape = Shape(input);
    const std::vector<int> others =
        Others(input, [&](const FeatureShape& other) { return other.channels == shape.channels; });
    const int from = others.empty() ? input : others[Below(static_cast<int>(others.size()))];
    const int pool = builder_.AddNode(Name("pool"), op::GlobalAveragePool(), {from});
    const int gate =
        builder_.AddNode(Name("gate"), op::Activation{ActivationFunction::kSigmoid}, {pool});
    Keep(builder_.AddNode(Name("product"), op::Multiply(), {input, gate}));
  }

  void AddConcat(int input) {
    const FeatureShape shape = Shape(input);
    const std::vector<int> others = Others(input, [&](const FeatureShape& other) {
      return other.height == shape.height && other.width == shape.width;
    });
    std::vector<int> inputs = {input};
    for (size_t i = 0; i < others.size() && i < 2; ++i) inputs.push_back(others[i]);
    if (inputs.size() == 1) inputs.push_back(input);
    if (shape.channels > 8) return;
    Keep(builder_.AddNode(Name("concat"), op::Concat(), inputs));
  }

  void AddPool(int input) {
    const Window window = SameWindow(Shape(input), 2 + Below(2), 1 + Below(2));
    const bool max = Below(2) == 0;
    Keep(builder_.AddNode(Name("window"),
                          max ? Operator(op::MaxPool{window}) : Operator(op::AveragePool{window}),
                          {input}));
  }

  // An inverted residual block, which the fusion of sums is made for; sometimes with another
  // skip.
  void AddBlock(int input) {
    const FeatureShape shape = Shape(input);
    const std::string name = Name("block");
    const LayerHyperparams plain = TinyHyperparams();
    int last = builder_.AddNormalized({name + "/expand", input, 1, 1, 4, AnyActivation()}, plain);
    last = builder_.AddNormalized({name + "/project", last, 3, 1, shape.channels}, plain);
    const std::vector<int> others =
        Others(last, [&](const FeatureShape& other) { return other == shape; });
    const int skip = others.empty() || Below(2) == 0 ? input : others.back();
    Keep(builder_.AddNode(name + "/add", op::Add(), {last, skip}));
  }

  void Keep(int node) {
    if (node != Node::kImage) values_.push_back(node);
  }

  // Pools every value that nothing reads, joins the pools and adds the classes.
  void Close() {
    const std::vector<std::vector<int>> readers = FindReaders(builder_.network());
    std::vector<int> pools;
    for (int n = 0; n < static_cast<int>(readers.size()); ++n) {
      if (!readers[n].empty()) continue;
      pools.push_back(builder_.AddNode(Name("pool"), op::GlobalAveragePool(), {n}));
    }
    if (pools.empty()) {
      pools.push_back(builder_.AddNode(Name("pool"), op::GlobalAveragePool(), {Node::kImage}));
    }
    const int joined =
        pools.size() == 1 ? pools[0] : builder_.AddNode(Name("concat"), op::Concat(), pools);
    LayerRequest classes{Name("classes"), joined, 1, 1, kClasses};
    if (Below(3) == 0) classes.keep_probability = 0.7f;
    builder_.AddBiased(classes, TinyHyperparams());
  }

  const std::vector<ActivationFunction> activations_ = AllActivationFunctions();
  CounterRandom random_;
  NetworkBuilder builder_;
  std::vector<int> values_;
  int counter_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_MODEL_RANDOM_GRAPH_H_
