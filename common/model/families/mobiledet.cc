#include "common/model/families/mobiledet.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "glog/logging.h"

#include "common/model/families/family.h"
#include "common/model/families/squeeze_excite.h"

namespace pushpull {
namespace {

constexpr int kChannelDivisor = 8;
constexpr double kSqueezeRatio = 0.25;
constexpr float kL2Weight = 4e-5f;
constexpr float kDecay = 0.99f;
constexpr float kEpsilon = 0.01f;

enum Kind {
  kNoExpansion,  // depthwise, 1x1
  kIbn,          // the inverted bottleneck of MobileNetV2: 1x1, depthwise, 1x1
  kFused,        // full convolution, 1x1
  kTucker,       // 1x1, full convolution, 1x1, with fewer channels inside
};
constexpr int kNumKinds = 4;

// TensorFlow's names of the blocks, by kind.
constexpr const char* kKindNames[kNumKinds] = {"IBNNoExpansion", "IBN", "FusedConv", "TuckerConv"};

struct BlockRow {
  Kind kind;
  int depth;   // output channels
  int kernel;  // of the depthwise or full convolution
  int stride;
  bool sum;  // adds the block's input to its output
  // How many times the input channels, or what share of them, the first convolution has.
  double expansion;
  double output_rank = 0.0;  // kTucker: the full convolution's share of the output channels
};

// The tables of TensorFlow's source. The first block of each group of rows does not add its input.
// A number above the rows is the stride of their outputs.
// clang-format off
constexpr BlockRow kCpuBlocks[] = {
    // 2
    {kNoExpansion, 8, 3, 1, false, 1},
    // 4
    {kIbn, 16, 3, 2, false, 4},
    // 8
    {kIbn, 32, 3, 2, false, 8}, {kIbn, 32, 3, 1, true, 4},
    {kIbn, 32, 3, 1, true, 4}, {kIbn, 32, 3, 1, true, 4},
    // 16
    {kIbn, 72, 5, 2, false, 8}, {kIbn, 72, 3, 1, true, 8},
    {kIbn, 72, 5, 1, true, 4}, {kIbn, 72, 3, 1, true, 4},

    {kIbn, 72, 3, 1, false, 8}, {kIbn, 72, 3, 1, true, 8},
    {kIbn, 72, 3, 1, true, 8}, {kIbn, 72, 3, 1, true, 8},
    // 32
    {kIbn, 104, 5, 2, false, 8}, {kIbn, 104, 5, 1, true, 4},
    {kIbn, 104, 5, 1, true, 4}, {kIbn, 104, 3, 1, true, 4},

    {kIbn, 144, 3, 1, false, 8}};
constexpr BlockRow kDspBlocks[] = {
    // 2
    {kNoExpansion, 24, 3, 1, false, 1},
    // 4
    {kFused, 32, 3, 2, false, 4}, {kFused, 32, 3, 1, true, 4},
    {kIbn, 32, 3, 1, true, 4}, {kTucker, 32, 3, 1, true, 0.25, 0.75},
    // 8
    {kFused, 64, 3, 2, false, 8}, {kIbn, 64, 3, 1, true, 4},
    {kFused, 64, 3, 1, true, 4}, {kFused, 64, 3, 1, true, 4},
    // 16
    {kFused, 120, 3, 2, false, 8}, {kIbn, 120, 3, 1, true, 4},
    {kIbn, 120, 3, 1, true, 8}, {kIbn, 120, 3, 1, true, 8},

    {kFused, 144, 3, 1, false, 8}, {kIbn, 144, 3, 1, true, 8},
    {kIbn, 144, 3, 1, true, 8}, {kIbn, 144, 3, 1, true, 8},
    // 32
    {kIbn, 160, 3, 2, false, 4}, {kIbn, 160, 3, 1, true, 4},
    {kFused, 160, 3, 1, true, 4}, {kTucker, 160, 3, 1, true, 0.75, 0.75},

    {kIbn, 240, 3, 1, false, 8}};
constexpr BlockRow kEdgeTpuBlocks[] = {
    // 2
    {kTucker, 16, 3, 1, false, 0.25, 0.75},
    // 4
    {kFused, 16, 3, 2, false, 8}, {kFused, 16, 3, 1, true, 4},
    {kFused, 16, 3, 1, true, 8}, {kFused, 16, 3, 1, true, 4},
    // 8
    {kFused, 40, 5, 2, false, 8}, {kFused, 40, 3, 1, true, 4},
    {kFused, 40, 3, 1, true, 4}, {kFused, 40, 3, 1, true, 4},
    // 16
    {kIbn, 72, 3, 2, false, 8}, {kIbn, 72, 3, 1, true, 8},
    {kFused, 72, 3, 1, true, 4}, {kFused, 72, 3, 1, true, 4},

    {kIbn, 96, 5, 1, false, 8}, {kIbn, 96, 5, 1, true, 8},
    {kIbn, 96, 3, 1, true, 8}, {kIbn, 96, 3, 1, true, 8},
    // 32
    {kIbn, 120, 5, 2, false, 8}, {kIbn, 120, 3, 1, true, 8},
    {kIbn, 120, 5, 1, true, 4}, {kIbn, 120, 3, 1, true, 8},

    {kIbn, 384, 5, 1, false, 8}};
constexpr BlockRow kGpuBlocks[] = {
    // 2
    {kTucker, 16, 3, 1, false, 0.25, 0.25},
    // 4
    {kFused, 32, 3, 2, false, 8}, {kTucker, 32, 3, 1, true, 0.25, 0.25},
    {kTucker, 32, 3, 1, true, 0.25, 0.25}, {kTucker, 32, 3, 1, true, 0.25, 0.25},
    // 8
    {kFused, 64, 3, 2, false, 8}, {kFused, 64, 3, 1, true, 8},
    {kFused, 64, 3, 1, true, 8}, {kFused, 64, 3, 1, true, 4},
    // 16
    {kFused, 128, 3, 2, false, 8}, {kFused, 128, 3, 1, true, 4},
    {kFused, 128, 3, 1, true, 4}, {kFused, 128, 3, 1, true, 4},

    {kFused, 128, 3, 1, false, 8}, {kFused, 128, 3, 1, true, 8},
    {kFused, 128, 3, 1, true, 8}, {kFused, 128, 3, 1, true, 8},
    // 32
    {kFused, 128, 3, 2, false, 4}, {kFused, 128, 3, 1, true, 4},
    {kFused, 128, 3, 1, true, 4}, {kFused, 128, 3, 1, true, 4},

    {kIbn, 384, 3, 1, false, 8}};
// clang-format on

struct Variant {
  int first_depth;
  ActivationFunction activation;
  bool squeeze;  // each block has squeeze and excitation
  absl::Span<const BlockRow> blocks;
};

Variant VariantOf(MobiledetVariant variant) {
  constexpr ActivationFunction kRelu6 = ActivationFunction::kRelu6;
  switch (variant) {
    case MobiledetVariant::kCpu:
      return {16, ActivationFunction::kHardSwish, true, kCpuBlocks};
    case MobiledetVariant::kDsp:
      return {32, kRelu6, false, kDspBlocks};
    case MobiledetVariant::kEdgeTpu:
      return {32, kRelu6, false, kEdgeTpuBlocks};
    case MobiledetVariant::kGpu:
      return {32, kRelu6, false, kGpuBlocks};
  }
  LOG(FATAL) << "MobileDet variant " << static_cast<int>(variant);
}

// Rounds to the nearest multiple of 8, but at least to 8. Unlike MakeDivisible it may lose more
// than 10 % of the channels.
int RoundDepth(int depth, double multiplier) {
  const int eighths = static_cast<int>(depth * multiplier / kChannelDivisor + 0.5);
  return std::max(eighths * kChannelDivisor, kChannelDivisor);
}

class BodyBuilder {
 public:
  BodyBuilder(const std::string& scope, const MobiledetOptions& options,
              const LayerHyperparams& hyperparams, NetworkBuilder* builder)
      : scope_(scope),
        variant_(VariantOf(options.variant)),
        multiplier_(options.multiplier),
        hyperparams_(hyperparams),
        builder_(*builder) {}

  MobiledetEndpoints Build() {
    last_ =
        builder_.AddNormalized({scope_ + "/Conv", Node::kImage, 3, 2,
                                RoundDepth(variant_.first_depth, multiplier_), variant_.activation},
                               hyperparams_);
    std::array<int, 5> endpoints{};
    size_t stride_log2 = 1;
    for (const BlockRow& row : variant_.blocks) {
      if (row.stride == 2) ++stride_log2;
      AddBlock(row);
      endpoints[stride_log2 - 1] = last_;
    }
    return {endpoints[0], endpoints[1], endpoints[2], endpoints[3], endpoints[4]};
  }

 private:
  // The second block of a kind is called "IBN_1", and so on. The same holds for the convolutions of
  // a block.
  static std::string Numbered(const std::string& name, int index) {
    return index == 0 ? name : absl::StrCat(name, "_", index);
  }

  void AddBlock(const BlockRow& row) {
    block_ = scope_ + "/" + Numbered(kKindNames[row.kind], num_blocks_[row.kind]++);
    num_convolutions_ = 0;
    const int block_input = last_;
    const int input_depth = builder_.shape(last_).channels;
    const int depth = RoundDepth(row.depth, multiplier_);
    switch (row.kind) {
      case kNoExpansion:
        AddDepthwise(row);
        break;
      case kIbn:
        AddConvolution(1, 1, static_cast<int>(input_depth * row.expansion), variant_.activation);
        AddDepthwise(row);
        break;
      case kFused:
        AddConvolution(row.kernel, row.stride, static_cast<int>(input_depth * row.expansion),
                       variant_.activation);
        break;
      case kTucker:
        AddConvolution(1, 1, RoundDepth(input_depth, row.expansion), variant_.activation);
        AddConvolution(row.kernel, row.stride, RoundDepth(depth, row.output_rank),
                       variant_.activation);
        break;
    }
    if (variant_.squeeze) {
      last_ = AddSqueezeExcite({block_ + "/SqueezeExcite", last_,
                                RoundDepth(builder_.shape(last_).channels, kSqueezeRatio),
                                variant_.activation, ActivationFunction::kSigmoid},
                               hyperparams_, &builder_);
    }
    AddConvolution(1, 1, depth, ActivationFunction::kNone);
    if (row.sum) last_ = builder_.AddNode(block_ + "/add", op::Add(), {last_, block_input});
  }

  void AddConvolution(int kernel, int stride, int depth, ActivationFunction activation) {
    const std::string scope = block_ + "/" + Numbered("Conv", num_convolutions_++);
    last_ = builder_.AddNormalized({scope, last_, kernel, stride, depth, activation}, hyperparams_);
  }

  void AddDepthwise(const BlockRow& row) {
    LayerHyperparams depthwise = hyperparams_;
    if (depthwise.initializer.has_variance_scaling_initializer()) {
      config::VarianceScalingInitializer& scaling =
          *depthwise.initializer.mutable_variance_scaling_initializer();
      if (scaling.mode() == config::VarianceScalingInitializer::FAN_IN) {
        scaling.set_factor(scaling.factor() * static_cast<float>(builder_.shape(last_).channels));
      }
    }
    last_ = builder_.AddNormalizedDepthwise(
        {block_ + "/SeparableConv2d", last_, row.kernel, row.stride, 0, variant_.activation},
        depthwise);
  }

  const std::string& scope_;
  const Variant variant_;
  const double multiplier_;
  const LayerHyperparams& hyperparams_;
  NetworkBuilder& builder_;
  int last_ = Node::kImage;
  std::string block_;  // scope of the current block
  int num_convolutions_ = 0;
  std::array<int, kNumKinds> num_blocks_{};
};

// How the type of a detector and the scope of its backbone name a variant.
struct VariantName {
  absl::string_view type;
  absl::string_view scope;
  MobiledetVariant variant;
};
constexpr VariantName kVariantNames[] = {
    {"ssd_mobiledet_cpu", "CPU", MobiledetVariant::kCpu},
    {"ssd_mobiledet_dsp", "DSP", MobiledetVariant::kDsp},
    {"ssd_mobiledet_edgetpu", "EdgeTPU", MobiledetVariant::kEdgeTpu},
    {"ssd_mobiledet_gpu", "GPU", MobiledetVariant::kGpu}};

const VariantName& VariantOf(absl::string_view type) {
  for (const VariantName& name : kVariantNames) {
    if (absl::StartsWith(type, name.type)) return name;
  }
  LOG(FATAL) << "no MobileDet for the type " << type;
}

}  // namespace

LayerHyperparams MobiledetScope(bool) {
  LayerHyperparams result;
  result.initializer = HeNormalInitializer();
  result.l2_weight = kL2Weight;
  result.regularize_depthwise = true;
  result.batch_norm->decay = kDecay;
  result.batch_norm->epsilon = kEpsilon;
  return result;
}

MobiledetEndpoints AddMobiledetBody(const std::string& scope, const MobiledetOptions& options,
                                    const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  return BodyBuilder(scope, options, hyperparams, builder).Build();
}

SsdBackbone AddMobiledet(const config::SsdFeatureExtractor& extractor,
                         const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  const VariantName& variant = VariantOf(extractor.type());
  SsdBackbone backbone;
  backbone.scope = absl::StrCat("FeatureExtractor/MobileDet", variant.scope);
  const MobiledetEndpoints ends = AddMobiledetBody(
      backbone.scope, {variant.variant, extractor.depth_multiplier()}, hyperparams, builder);
  backbone.maps = {ends.c4, ends.c5};
  backbone.extra_scope = backbone.scope + "/C5";
  return backbone;
}

}  // namespace pushpull
