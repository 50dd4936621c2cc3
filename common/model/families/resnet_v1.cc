#include "common/model/families/resnet_v1.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/model/families/depths.h"

namespace pushpull {
namespace {

constexpr int kChannelDivisor = 8;
constexpr int kFirstDepth = 64;
constexpr int kExpansion = 4;  // of the last convolution of a unit
constexpr ActivationFunction kRelu = ActivationFunction::kRelu;

// The units of the four blocks: table 1 of the paper.
std::array<int, 4> UnitsOf(int layers) {
  if (layers == 101) return {3, 4, 23, 3};
  if (layers == 152) return {3, 8, 36, 3};
  CHECK_EQ(layers, 50);
  return {3, 4, 6, 3};
}

// Adds three convolutions and their sum with the input, or with a 1x1 convolution of the input if
// the shapes differ.
int AddUnit(const std::string& scope, int input, int depth, int stride,
            const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  int last = builder->AddNormalized({scope + "/conv1", input, 1, 1, depth, kRelu}, hyperparams);
  LayerRequest middle{scope + "/conv2", last, 3, stride, depth, kRelu};
  middle.fixed_padding = true;
  last = builder->AddNormalized(middle, hyperparams);
  last = builder->AddNormalized({scope + "/conv3", last, 1, 1, depth * kExpansion}, hyperparams);
  int shortcut = input;
  if (!(builder->shape(input) == builder->shape(last))) {
    shortcut = builder->AddNormalized({scope + "/shortcut", input, 1, stride, depth * kExpansion},
                                      hyperparams);
  }
  last = builder->AddNode(scope + "/add", op::Add(), {last, shortcut});
  return builder->AddNode(scope + "/Relu", op::Activation{kRelu}, {last});
}

}  // namespace

int AddResnetV1Body(const std::string& scope, const ResnetV1Options& options,
                    const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  const auto depth = [&options](int full) {
    return MakeDivisible(full * options.multiplier, kChannelDivisor, options.min_depth);
  };
  LayerRequest first{scope + "/conv1", Node::kImage, 7, 2, depth(kFirstDepth), kRelu};
  first.fixed_padding = true;
  int last = builder->AddNormalized(first, hyperparams);
  last = builder->AddNode(scope + "/pool1", op::MaxPool{FixedWindow(3, 2)}, {last});
  const std::array<int, 4> units = UnitsOf(options.layers);
  for (size_t block = 0; block < units.size(); ++block) {
    const int block_depth = depth(kFirstDepth << block);
    for (int unit = 0; unit < units[block]; ++unit) {
      const int stride = block > 0 && unit == 0 ? 2 : 1;
      last = AddUnit(absl::StrCat(scope, "/block", block + 1, "/unit_", unit + 1, "/bottleneck_v1"),
                     last, block_depth, stride, hyperparams, builder);
    }
  }
  return last;
}

}  // namespace pushpull
