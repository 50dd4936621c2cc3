// Tested by tests/common/model/ssd/feature_pyramid_test.cc.
#include "common/model/ssd/mnas_fpn.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

#include "common/model/families/depths.h"
#include "common/model/hyperparams.h"

namespace pushpull {
namespace {

constexpr char kScope[] = "FeatureExtractor/MnasFPN";
constexpr int kChannelDivisor = 8;
constexpr int kCells = 4;
constexpr int kMaps = 4;           // between two cells
constexpr int kFirstLevel = 3;     // of these maps
constexpr int kBackboneLevel = 2;  // the first one of SsdBackbone::levels
constexpr int kDepth = 48;         // of each map, before depth_multiplier
constexpr float kL2Weight = 1e-4f;
constexpr float kBackboneL2Weight = 4e-5f;
constexpr float kDecay = 0.99f;
constexpr float kEpsilon = 0.01f;
// He's deviation for a depthwise kernel of 3x3 weights, corrected for the truncation.
constexpr float kSeparableDeviation = 0.536f;

// A value of a cell: its node and its level.
struct Map {
  int node;
  int level;
};

// Two values of the cell are brought to `level`, added, and followed by a separable convolution.
// Values 0 to 3 are the inputs of the cell, value 4 is the result of its first block, and so on.
struct Block {
  std::array<int, 2> inputs;
  int level;
  int kernel;
  int depth;  // of the sum, before depth_multiplier
};

// Figure 5 of the paper. The results of the last four blocks, levels 3 to 6, are the next cell's
// inputs.
constexpr Block kBlocks[] = {
    {{1, 2}, 4, 3, 256}, {{0, 4}, 3, 3, 128}, {{5, 4}, 4, 3, 128},
    {{4, 3}, 5, 5, 128}, {{4, 3}, 6, 3, 96},
};

class MnasFpn {
 public:
  MnasFpn(const config::SsdFeatureExtractor& extractor, NetworkBuilder* builder)
      : extractor_(extractor), builder_(*builder), dense_(MnasFpnScope(false)) {
    dense_.l2_weight = kL2Weight;
    separable_ = dense_;
    separable_.initializer = *dense_.depthwise_initializer;
  }

  // Returns the coarsest input of the first cell, made from the map of level 5. Its weights have no
  // L2 loss.
  int AddCoarsestMap(int map) {
    LayerHyperparams hyperparams = dense_;
    hyperparams.l2_weight = 0.0f;
    const int pool = AddMaxPool(absl::StrCat(kScope, "/C6_downsample"), map, 2);
    return AddConvolution(absl::StrCat(kScope, "/C6_Conv1x1"), pool,
                          extractor_.fpn().additional_layer_depth(), hyperparams);
  }

  // Returns the last four values of the cell, each with the input of its level added to it where
  // the two have the same depth.
  std::vector<Map> AddCell(const std::string& scope, const std::vector<Map>& inputs) {
    std::vector<Map> values = inputs;
    for (const Block& block : kBlocks) {
      const std::string name = absl::StrCat(scope, "/block_", values.size() - inputs.size());
      values.push_back({AddBlock(name, block, values), block.level});
    }
    std::vector<Map> outputs(values.end() - kMaps, values.end());
    for (int i = 0; i < kMaps; ++i) {
      if (builder_.shape(outputs[i].node) != builder_.shape(inputs[i].node)) continue;
      outputs[i].node = builder_.AddNode(absl::StrCat(scope, "/residual_", i), op::Add(),
                                         {outputs[i].node, inputs[i].node});
    }
    return outputs;
  }

 private:
  int Depth(int full) const {
    return MakeDivisible(full * extractor_.depth_multiplier(), kChannelDivisor,
                         extractor_.min_depth());
  }

  int AddMaxPool(const std::string& name, int input, int stride) {
    return builder_.AddNode(name, op::MaxPool{SameWindow(builder_.shape(input), 3, stride)},
                            {input});
  }

  int AddConvolution(const std::string& scope, int input, int depth,
                     const LayerHyperparams& hyperparams) {
    return builder_.AddNormalized({scope, input, 1, 1, Depth(depth)}, hyperparams);
  }

  // Changes the depth where the map is smaller: before upsampling, or after a pool.
  int AddResized(const std::string& scope, const Map& map, int level, int depth) {
    const std::string convolution = scope + "/Conv1x1";
    if (map.level < level) {
      const int pool = AddMaxPool(scope + "/Downsample", map.node, 1 << (level - map.level));
      return AddConvolution(convolution, pool, depth, dense_);
    }
    const int node = AddConvolution(convolution, map.node, depth, dense_);
    if (map.level == level) return node;
    return builder_.AddNode(scope + "/upsampling", op::Upsample{1 << (map.level - level)}, {node});
  }

  int AddBlock(const std::string& scope, const Block& block, absl::Span<const Map> values) {
    std::vector<int> resized;
    for (const int input : block.inputs) {
      resized.push_back(AddResized(absl::StrCat(scope, "/input_", resized.size()), values[input],
                                   block.level, block.depth));
    }
    const int sum = builder_.AddNode(scope + "/add", op::Add(), resized);
    const int active =
        builder_.AddNode(scope + "/Relu6", op::Activation{ActivationFunction::kRelu6}, {sum});
    LayerRequest request{scope + "/SepConv", active, block.kernel, 1, Depth(kDepth)};
    request.separable = true;
    return builder_.AddNormalized(request, separable_);
  }

  const config::SsdFeatureExtractor& extractor_;
  NetworkBuilder& builder_;
  LayerHyperparams dense_;
  LayerHyperparams separable_;
};

}  // namespace

LayerHyperparams MnasFpnScope(bool) {
  LayerHyperparams result;
  result.initializer = HeNormalInitializer();
  result.depthwise_initializer.emplace();
  result.depthwise_initializer->mutable_truncated_normal_initializer()->set_stddev(
      kSeparableDeviation);
  result.l2_weight = kBackboneL2Weight;
  result.regularize_depthwise = true;
  result.batch_norm->decay = kDecay;
  result.batch_norm->epsilon = kEpsilon;
  return result;
}

std::vector<int> AddMnasFpn(const config::SsdFeatureExtractor& extractor,
                            const SsdBackbone& backbone, NetworkBuilder* builder) {
  MnasFpn pyramid(extractor, builder);
  std::vector<Map> maps;
  for (int level = kFirstLevel; level < kFirstLevel + kMaps - 1; ++level) {
    maps.push_back({backbone.levels[level - kBackboneLevel], level});
  }
  maps.push_back({pyramid.AddCoarsestMap(maps.back().node), kFirstLevel + kMaps - 1});
  for (int cell = 0; cell < kCells; ++cell) {
    maps = pyramid.AddCell(absl::StrCat(kScope, "/cell_", cell), maps);
  }
  std::vector<int> nodes;
  for (const Map& map : maps) nodes.push_back(map.node);
  return nodes;
}

}  // namespace pushpull
