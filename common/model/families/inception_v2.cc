#include "common/model/families/inception_v2.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/model/families/depths.h"
#include "common/model/families/family.h"

namespace pushpull {
namespace {

constexpr char kScope[] = "InceptionV2";
constexpr int kFirstDepth = 64;
constexpr int kMaxRepetitions = 8;
// From slim's training scope.
constexpr float kL2Weight = 4e-5f;
constexpr float kDecay = 0.9997f;

// Deviations of truncated normal initializers.
constexpr float kFirstDeviation = 1.0f;
constexpr float kReductionDeviation = 0.09f;  // of 1x1 convolutions before larger ones
constexpr float kProjectionDeviation = 0.1f;  // of 1x1 convolutions after a pool
constexpr float kScopesInitializer = 0.0f;    // not a deviation: that of the hyperparams

// A module of four branches. Figure 5 of the paper has these depths:
//   direct             of a 1x1 convolution
//   reduced_3, conv_3  of a 1x1 convolution and a 3x3 one
//   reduced_5, conv_5  of a 1x1 convolution and two 3x3 ones, which cover 5x5 pixels
//   projection         of a 1x1 convolution after a pool
// In a module that halves the resolution, the last 3x3 convolutions and the pool have stride 2, and
// there is neither a direct branch nor a projection.
struct ModuleRow {
  absl::string_view name;
  int direct, reduced_3, conv_3, reduced_5, conv_5, projection;
  bool halves() const { return direct == 0; }
};
constexpr ModuleRow kModules[] = {
    {"Mixed_3b", 64, 64, 64, 64, 96, 32},       {"Mixed_3c", 64, 64, 96, 64, 96, 64},
    {"Mixed_4a", 0, 128, 160, 64, 96, 0},       {"Mixed_4b", 224, 64, 96, 96, 128, 128},
    {"Mixed_4c", 192, 96, 128, 96, 128, 128},   {"Mixed_4d", 160, 128, 160, 128, 160, 96},
    {"Mixed_4e", 96, 128, 192, 160, 192, 96},   {"Mixed_5a", 0, 128, 192, 192, 256, 0},
    {"Mixed_5b", 352, 192, 320, 160, 224, 128}, {"Mixed_5c", 352, 192, 320, 192, 224, 128}};
// The pool of this module takes the largest element instead of the mean.
constexpr absl::string_view kMaxPoolModule = "Mixed_5c";

class BodyBuilder {
 public:
  BodyBuilder(const std::string& scope, const InceptionV2Options& options,
              const LayerHyperparams& hyperparams, NetworkBuilder* builder)
      : scope_(scope), options_(options), hyperparams_(hyperparams), builder_(*builder) {}

  InceptionV2Endpoints Build() {
    int last = AddFirst(scope_ + "/Conv2d_1a_7x7");
    last = AddMaxPool(scope_ + "/MaxPool_2a_3x3", last, 2);
    last = AddConvolution(scope_ + "/Conv2d_2b_1x1", last, 1, 1, 64, kProjectionDeviation);
    last = AddConvolution(scope_ + "/Conv2d_2c_3x3", last, 3, 1, 192);
    last = AddMaxPool(scope_ + "/MaxPool_3a_3x3", last, 2);
    InceptionV2Endpoints endpoints;
    for (const ModuleRow& row : kModules) {
      last = AddModule(row, last);
      if (row.name == "Mixed_4c") endpoints.mixed_4c = last;
    }
    endpoints.mixed_5c = last;
    return endpoints;
  }

 private:
  int Depth(int full) const { return ScaleDepth(full, options_.multiplier, options_.min_depth); }

  static LayerHyperparams WithDeviation(LayerHyperparams hyperparams, float deviation) {
    if (deviation == kScopesInitializer) return hyperparams;
    hyperparams.initializer.mutable_truncated_normal_initializer()->set_stddev(deviation);
    hyperparams.initializer.mutable_truncated_normal_initializer()->set_mean(0.0f);
    return hyperparams;
  }

  // A depthwise convolution that gives up to eight channels for each of the image, but no more than
  // the 1x1 convolution after it, and that 1x1 convolution.
  int AddFirst(const std::string& scope) {
    LayerRequest first{scope, Node::kImage, 7, 2, Depth(kFirstDepth), hyperparams_.activation};
    first.separable = true;
    first.repetitions = std::clamp(first.depth / 3, 1, kMaxRepetitions);
    LayerHyperparams hyperparams = WithDeviation(hyperparams_, kFirstDeviation);
    if (!options_.biased_first_layer) return builder_.AddNormalized(first, hyperparams);
    hyperparams.l2_weight = 0.0f;
    return builder_.AddBiased(first, hyperparams);
  }

  int AddConvolution(const std::string& scope, int input, int kernel, int stride, int depth,
                     float deviation = kScopesInitializer) {
    return builder_.AddNormalized(
        {scope, input, kernel, stride, Depth(depth), hyperparams_.activation},
        WithDeviation(hyperparams_, deviation));
  }

  int AddMaxPool(const std::string& scope, int input, int stride) {
    return builder_.AddNode(scope, op::MaxPool{SameWindow(builder_.shape(input), 3, stride)},
                            {input});
  }

  int AddModule(const ModuleRow& row, int input) {
    const std::string module = absl::StrCat(scope_, "/", row.name);
    std::vector<int> branches;
    const auto branch = [&] { return absl::StrCat(module, "/Branch_", branches.size()); };
    if (!row.halves()) {
      branches.push_back(AddConvolution(branch() + "/Conv2d_0a_1x1", input, 1, 1, row.direct));
    }
    for (const auto& [reduced, depth, convolutions] :
         {std::tuple(row.reduced_3, row.conv_3, 1), std::tuple(row.reduced_5, row.conv_5, 2)}) {
      int last =
          AddConvolution(branch() + "/Conv2d_0a_1x1", input, 1, 1, reduced, kReductionDeviation);
      for (int i = 0; i < convolutions; ++i) {
        const bool halves = row.halves() && i + 1 == convolutions;
        const char* const name = halves   ? "/Conv2d_1a_3x3"
                                 : i == 0 ? "/Conv2d_0b_3x3"
                                          : "/Conv2d_0c_3x3";
        last = AddConvolution(branch() + name, last, 3, halves ? 2 : 1, depth);
      }
      branches.push_back(last);
    }
    branches.push_back(AddPooled(branch(), row, input));
    return builder_.AddNode(module + "/concat", op::Concat(), branches);
  }

  int AddPooled(const std::string& branch, const ModuleRow& row, int input) {
    if (row.halves()) return AddMaxPool(branch + "/MaxPool_1a_3x3", input, 2);
    const int pool =
        row.name == kMaxPoolModule
            ? AddMaxPool(branch + "/MaxPool_0a_3x3", input, 1)
            : builder_.AddNode(branch + "/AvgPool_0a_3x3",
                               op::AveragePool{SameWindow(builder_.shape(input), 3, 1)}, {input});
    return AddConvolution(branch + "/Conv2d_0b_1x1", pool, 1, 1, row.projection,
                          kProjectionDeviation);
  }

  const std::string& scope_;
  const InceptionV2Options& options_;
  const LayerHyperparams& hyperparams_;
  NetworkBuilder& builder_;
};

int AddClassifierBody(const config::Classifier& classifier, const LayerHyperparams& hyperparams,
                      NetworkBuilder* builder) {
  const config::ClassifierFeatureExtractor& extractor = classifier.feature_extractor();
  const InceptionV2Options options{extractor.depth_multiplier(), extractor.min_depth(),
                                   !extractor.has_conv_hyperparams()};
  return AddInceptionV2Body(kScope, options, hyperparams, builder).mixed_5c;
}

}  // namespace

LayerHyperparams InceptionScope(bool) {
  LayerHyperparams hyperparams;
  hyperparams.initializer.mutable_variance_scaling_initializer();
  hyperparams.l2_weight = kL2Weight;
  hyperparams.activation = ActivationFunction::kRelu;
  hyperparams.batch_norm->decay = kDecay;
  hyperparams.batch_norm->scale = false;
  return hyperparams;
}

InceptionV2Endpoints AddInceptionV2Body(const std::string& scope, const InceptionV2Options& options,
                                        const LayerHyperparams& hyperparams,
                                        NetworkBuilder* builder) {
  return BodyBuilder(scope, options, hyperparams, builder).Build();
}

ClassifierFamily InceptionV2Classifier(absl::string_view) {
  ClassifierFamily family{kScope, AddClassifierBody};
  family.scope = [] { return InceptionScope(/*keras=*/false); };
  return family;
}

SsdBackbone AddInceptionV2(const config::SsdFeatureExtractor& extractor,
                           const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  SsdBackbone backbone;
  backbone.scope = absl::StrCat("FeatureExtractor/", kScope);
  // TensorFlow applies explicit padding to the extra layers only.
  builder->UseFixedPadding(false);
  const InceptionV2Endpoints ends = AddInceptionV2Body(
      backbone.scope, {extractor.depth_multiplier(), extractor.min_depth()}, hyperparams, builder);
  builder->UseFixedPadding(extractor.use_explicit_padding());
  backbone.maps = {ends.mixed_4c, ends.mixed_5c};
  backbone.extra_scope = backbone.scope + "/Mixed_5c";
  return backbone;
}

}  // namespace pushpull
