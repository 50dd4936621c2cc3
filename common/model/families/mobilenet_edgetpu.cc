#include "common/model/families/mobilenet_edgetpu.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

#include "common/model/families/depths.h"
#include "common/model/families/family.h"

namespace pushpull {
namespace {

constexpr int kChannelDivisor = 8;
constexpr int kFirstDepth = 32;
constexpr int kLastDepth = 1280;  // of the classifier
constexpr char kScope[] = "MobilenetEdgeTPU";
constexpr ActivationFunction kRelu = ActivationFunction::kRelu;

struct BlockRow {
  bool fused;     // a full convolution in the place of expansion and depthwise convolution
  int kernel;     // of the full or depthwise convolution
  int expansion;  // factor; 1: the block has no expansion
  int depth;      // output channels
  int stride;
  bool may_add = true;  // adds its input if the shapes agree
};

// clang-format off
constexpr BlockRow kBlocks[] = {
    {true, 3, 1, 16, 1},
    {true, 3, 8, 32, 2}, {true, 3, 4, 32, 1}, {true, 3, 4, 32, 1}, {true, 3, 4, 32, 1},
    {true, 3, 8, 48, 2}, {true, 3, 4, 48, 1}, {true, 3, 4, 48, 1}, {true, 3, 4, 48, 1},
    {false, 3, 8, 96, 2}, {false, 3, 4, 96, 1}, {false, 3, 4, 96, 1}, {false, 3, 4, 96, 1},
    {false, 3, 8, 96, 1, false}, {false, 3, 4, 96, 1}, {false, 3, 4, 96, 1}, {false, 3, 4, 96, 1},
    {false, 5, 8, 160, 2}, {false, 5, 4, 160, 1}, {false, 5, 4, 160, 1}, {false, 5, 4, 160, 1},
    {false, 3, 8, 192, 1}};
// clang-format on
// The last block at stride 16.
constexpr int kLastBlockAtStride16 = 16;

// The 1x1 convolution that ends the classifier is never narrower than in the paper's network, as
// slim's version of width 0.75 has it.
int AddClassifierBody(const config::Classifier& classifier, const LayerHyperparams& hyperparams,
                      NetworkBuilder* builder) {
  const config::ClassifierFeatureExtractor& extractor = classifier.feature_extractor();
  const MobilenetEdgetpuOptions options{extractor.depth_multiplier(), extractor.min_depth()};
  const int last = AddMobilenetEdgetpuBody(kScope, options, hyperparams, builder).layer_23;
  const int depth = MakeDivisible(kLastDepth * std::max(options.multiplier, 1.0), kChannelDivisor,
                                  options.min_depth);
  return builder->AddNormalized({absl::StrCat(kScope, "/Conv_1"), last, 1, 1, depth, kRelu},
                                hyperparams);
}

}  // namespace

MobilenetEdgetpuEndpoints AddMobilenetEdgetpuBody(const std::string& scope,
                                                  const MobilenetEdgetpuOptions& options,
                                                  const LayerHyperparams& hyperparams,
                                                  NetworkBuilder* builder) {
  const auto depth = [&options](int full) {
    return MakeDivisible(full * options.multiplier, kChannelDivisor, options.min_depth);
  };
  MobilenetEdgetpuEndpoints endpoints;
  int last = builder->AddNormalized(
      {scope + "/Conv", Node::kImage, 3, 2, depth(kFirstDepth), kRelu}, hyperparams);
  for (int i = 0; i < static_cast<int>(std::size(kBlocks)); ++i) {
    const BlockRow& row = kBlocks[i];
    const std::string block =
        absl::StrCat(scope, "/expanded_conv", i == 0 ? "" : absl::StrCat("_", i));
    const int block_input = last;
    const int input_depth = builder->shape(block_input).channels;
    if (row.expansion > 1) {
      LayerRequest expand{block + "/expand", last, 1, 1};
      expand.depth = MakeDivisible(row.expansion * input_depth, kChannelDivisor, kChannelDivisor);
      expand.activation = kRelu;
      if (row.fused) {
        expand.kernel = row.kernel;
        expand.stride = row.stride;
      }
      last = builder->AddNormalized(expand, hyperparams);
      if (i == kLastBlockAtStride16) endpoints.layer_18_expansion = last;
    }
    if (!row.fused) {
      last = builder->AddNormalizedDepthwise(
          {block + "/depthwise", last, row.kernel, row.stride, 0, kRelu}, hyperparams);
    }
    last = builder->AddNormalized({block + "/project", last, 1, 1, depth(row.depth)}, hyperparams);
    if (row.may_add && row.stride == 1 && builder->shape(last).channels == input_depth) {
      last = builder->AddNode(block + "/project/add", op::Add(), {last, block_input});
    }
  }
  endpoints.layer_23 = last;
  return endpoints;
}

ClassifierFamily MobilenetEdgetpuClassifier(absl::string_view) {
  return {kScope, AddClassifierBody};
}

SsdBackbone AddMobilenetEdgetpu(const config::SsdFeatureExtractor& extractor,
                                const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  const MobilenetEdgetpuOptions options{extractor.depth_multiplier(), extractor.min_depth()};
  SsdBackbone backbone;
  backbone.scope = absl::StrCat("FeatureExtractor/", kScope);
  const MobilenetEdgetpuEndpoints ends =
      AddMobilenetEdgetpuBody(backbone.scope, options, WithGammaAndBeta(hyperparams), builder);
  backbone.maps = {ends.layer_18_expansion, ends.layer_23};
  backbone.extra_scope = backbone.scope + "/layer_23";
  return backbone;
}

}  // namespace pushpull
