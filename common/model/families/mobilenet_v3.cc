#include "common/model/families/mobilenet_v3.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

#include "common/model/families/depths.h"
#include "common/model/families/squeeze_excite.h"

namespace pushpull {
namespace {

constexpr int kChannelDivisor = 8;
constexpr int kFirstDepth = 16;
constexpr int kSqueezeFactor = 4;

constexpr ActivationFunction kRelu = ActivationFunction::kRelu;
constexpr ActivationFunction kHardSwish = ActivationFunction::kHardSwish;

struct BlockRow {
  int kernel;
  int expansion;  // channels between the two 1x1 convolutions
  int depth;      // output channels
  bool squeeze;   // has squeeze and excitation
  ActivationFunction activation;
  int stride;
};

// Tables 1 and 2 of the paper.
constexpr BlockRow kLarge[] = {
    {3, 16, 16, false, kRelu, 1},       {3, 64, 24, false, kRelu, 2},
    {3, 72, 24, false, kRelu, 1},       {5, 72, 40, true, kRelu, 2},
    {5, 120, 40, true, kRelu, 1},       {5, 120, 40, true, kRelu, 1},
    {3, 240, 80, false, kHardSwish, 2}, {3, 200, 80, false, kHardSwish, 1},
    {3, 184, 80, false, kHardSwish, 1}, {3, 184, 80, false, kHardSwish, 1},
    {3, 480, 112, true, kHardSwish, 1}, {3, 672, 112, true, kHardSwish, 1},
    {5, 672, 160, true, kHardSwish, 2}, {5, 960, 160, true, kHardSwish, 1},
    {5, 960, 160, true, kHardSwish, 1}};
constexpr BlockRow kSmall[] = {{3, 16, 16, true, kRelu, 2},       {3, 72, 24, false, kRelu, 2},
                               {3, 88, 24, false, kRelu, 1},      {5, 96, 40, true, kHardSwish, 2},
                               {5, 240, 40, true, kHardSwish, 1}, {5, 240, 40, true, kHardSwish, 1},
                               {5, 120, 48, true, kHardSwish, 1}, {5, 144, 48, true, kHardSwish, 1},
                               {5, 288, 96, true, kHardSwish, 2}, {5, 576, 96, true, kHardSwish, 1},
                               {5, 576, 96, true, kHardSwish, 1}};

absl::Span<const BlockRow> BlocksOf(MobilenetV3Size size) {
  return size == MobilenetV3Size::kLarge ? absl::MakeConstSpan(kLarge)
                                         : absl::MakeConstSpan(kSmall);
}

}  // namespace

int AddMobilenetV3Body(const std::string& scope, const MobilenetV3Options& options,
                       const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  const auto depth = [&options](double full) {
    return MakeDivisible(full * options.multiplier, kChannelDivisor, options.min_depth);
  };
  int last = builder->AddNormalized(
      {scope + "/Conv", Node::kImage, 3, 2, depth(kFirstDepth), kHardSwish}, hyperparams);
  int nominal_input = kFirstDepth;
  const absl::Span<const BlockRow> blocks = BlocksOf(options.size);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const BlockRow& row = blocks[i];
    const std::string block =
        absl::StrCat(scope, "/expanded_conv", i == 0 ? "" : absl::StrCat("_", i));
    const int block_input = last;
    const int input_depth = builder->shape(block_input).channels;
    if (row.expansion != nominal_input) {
      const int inner =
          MakeDivisible(static_cast<double>(row.expansion) * input_depth / nominal_input,
                        kChannelDivisor, kChannelDivisor);
      last = builder->AddNormalized({block + "/expand", last, 1, 1, inner, row.activation},
                                    hyperparams);
    }
    last = builder->AddNormalizedDepthwise(
        {block + "/depthwise", last, row.kernel, row.stride, 0, row.activation}, hyperparams);
    if (row.squeeze) {
      const int squeezed =
          MakeDivisible(static_cast<double>(builder->shape(last).channels) / kSqueezeFactor,
                        kChannelDivisor, kChannelDivisor);
      last = AddSqueezeExcite({block + "/squeeze_excite", last, squeezed}, hyperparams, builder);
    }
    last = builder->AddNormalized({block + "/project", last, 1, 1, depth(row.depth)}, hyperparams);
    if (row.stride == 1 && builder->shape(last).channels == input_depth) {
      last = builder->AddNode(block + "/project/add", op::Add(), {last, block_input});
    }
    nominal_input = row.depth;
  }
  // Six times the channels of the last block.
  const int last_depth = depth(blocks.back().depth * 6);
  return builder->AddNormalized({scope + "/Conv_1", last, 1, 1, last_depth, kHardSwish},
                                hyperparams);
}

int AddMobilenetV3Top(const std::string& scope, int pool, const MobilenetV3Options& options,
                      const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  const int full = options.size == MobilenetV3Size::kLarge ? 1280 : 1024;
  const int depth =
      MakeDivisible(full * std::max(options.multiplier, 1.0), kChannelDivisor, options.min_depth);
  return builder->AddBiased({scope + "/Conv_2", pool, 1, 1, depth, kHardSwish}, hyperparams);
}

}  // namespace pushpull
