#include "common/model/families/mobilenet_v3.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

#include "common/model/families/depths.h"
#include "common/model/families/family.h"
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

// The index of the first block whose output has stride 32.
size_t FirstBlockAtStride32(absl::Span<const BlockRow> blocks) {
  size_t index = blocks.size() - 1;
  while (blocks[index].stride == 1) --index;
  return index;
}

constexpr char kClassifierScope[] = "MobilenetV3";

// `type` is "mobilenet_v3_large", "ssd_mobilenet_v3_small", ...
MobilenetV3Size SizeOf(absl::string_view type) {
  return absl::StrContains(type, "small") ? MobilenetV3Size::kSmall : MobilenetV3Size::kLarge;
}

MobilenetV3Options OptionsOf(const config::Classifier& classifier) {
  const config::ClassifierFeatureExtractor& extractor = classifier.feature_extractor();
  return {SizeOf(extractor.type()), extractor.depth_multiplier(), extractor.min_depth()};
}

int AddClassifierBody(const config::Classifier& classifier, const LayerHyperparams& hyperparams,
                      NetworkBuilder* builder) {
  return AddMobilenetV3Body(kClassifierScope, OptionsOf(classifier), hyperparams, builder)
      .stride_32;
}

int AddClassifierTop(const config::Classifier& classifier, int pool,
                     const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  return AddMobilenetV3Top(kClassifierScope, pool, OptionsOf(classifier), hyperparams, builder);
}

}  // namespace

MobilenetV3Endpoints AddMobilenetV3Body(const std::string& scope, const MobilenetV3Options& options,
                                        const LayerHyperparams& hyperparams,
                                        NetworkBuilder* builder) {
  const auto depth = [&options](double full) {
    return MakeDivisible(full * options.multiplier, kChannelDivisor, options.min_depth);
  };
  MobilenetV3Endpoints endpoints;
  int last = builder->AddNormalized(
      {scope + "/Conv", Node::kImage, 3, 2, depth(kFirstDepth), kHardSwish}, hyperparams);
  int nominal_input = kFirstDepth;
  const absl::Span<const BlockRow> blocks = BlocksOf(options.size);
  const size_t first_at_stride_32 = FirstBlockAtStride32(blocks);
  const int tail_divisor = options.reduced_tail ? 2 : 1;
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
      if (i == first_at_stride_32) endpoints.stride_16_expansion = last;
    }
    last = builder->AddNormalizedDepthwise(
        {block + "/depthwise", last, row.kernel, row.stride, 0, row.activation}, hyperparams);
    if (row.squeeze) {
      const int squeezed =
          MakeDivisible(static_cast<double>(builder->shape(last).channels) / kSqueezeFactor,
                        kChannelDivisor, kChannelDivisor);
      last = AddSqueezeExcite({block + "/squeeze_excite", last, squeezed}, hyperparams, builder);
    }
    const int full_depth = i < first_at_stride_32 ? row.depth : row.depth / tail_divisor;
    const int block_depth = depth(full_depth);
    last = builder->AddNormalized({block + "/project", last, 1, 1, block_depth}, hyperparams);
    if (row.stride == 1 && block_depth == input_depth) {
      last = builder->AddNode(block + "/project/add", op::Add(), {last, block_input});
    }
    nominal_input = row.depth;
  }
  // Six times the channels of the last block.
  const int full_last_depth = blocks.back().depth / tail_divisor * 6;
  endpoints.stride_32 = builder->AddNormalized(
      {scope + "/Conv_1", last, 1, 1, depth(full_last_depth), kHardSwish}, hyperparams);
  return endpoints;
}

int AddMobilenetV3Top(const std::string& scope, int pool, const MobilenetV3Options& options,
                      const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  const int full = options.size == MobilenetV3Size::kLarge ? 1280 : 1024;
  const int depth =
      MakeDivisible(full * std::max(options.multiplier, 1.0), kChannelDivisor, options.min_depth);
  return builder->AddBiased({scope + "/Conv_2", pool, 1, 1, depth, kHardSwish}, hyperparams);
}

ClassifierFamily MobilenetV3Classifier(absl::string_view) {
  return {kClassifierScope, AddClassifierBody, AddClassifierTop};
}

SsdBackbone AddMobilenetV3(const config::SsdFeatureExtractor& extractor,
                           const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  const MobilenetV3Options options{SizeOf(extractor.type()), extractor.depth_multiplier(),
                                   extractor.min_depth(), /*reduced_tail=*/true};
  SsdBackbone backbone;
  backbone.scope = "FeatureExtractor/MobilenetV3";
  const MobilenetV3Endpoints ends =
      AddMobilenetV3Body(backbone.scope, options, WithGammaAndBeta(hyperparams), builder);
  backbone.maps = {ends.stride_16_expansion, ends.stride_32};
  const bool large = options.size == MobilenetV3Size::kLarge;
  backbone.extra_scope = backbone.scope + (large ? "/layer_17" : "/layer_13");
  return backbone;
}

}  // namespace pushpull
