// The VGG networks (Simonyan and Zisserman, ICLR 2015) with TensorFlow slim's variable names.
// `vgg_a` has 11 layers with weights. Batch norm is optional: slim's networks and those of the
// paper have biases instead.
#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/model/families/depths.h"
#include "common/model/families/family.h"

namespace pushpull {
namespace {

constexpr int kFirstDepth = 64;
constexpr int kLastDepth = 512;
constexpr int kDenseDepth = 4096;
// From slim's training scope.
constexpr float kL2Weight = 5e-4f;

// The convolutions before each max pool: table 1 of the paper.
std::array<int, 5> ConvolutionsOf(absl::string_view type) {
  if (type == "vgg_16") return {2, 2, 3, 3, 3};
  if (type == "vgg_19") return {2, 2, 4, 4, 4};
  return {1, 1, 2, 2, 2};
}

int DepthOf(const config::ClassifierFeatureExtractor& extractor, int full) {
  return ScaleDepth(full, extractor.depth_multiplier(), extractor.min_depth());
}

int AddBody(const config::Classifier& classifier, const LayerHyperparams& hyperparams,
            NetworkBuilder* builder) {
  const config::ClassifierFeatureExtractor& extractor = classifier.feature_extractor();
  const std::array<int, 5> convolutions = ConvolutionsOf(extractor.type());
  int last = Node::kImage;
  for (int block = 0; block < 5; ++block) {
    const int depth = DepthOf(extractor, std::min(kFirstDepth << block, kLastDepth));
    for (int i = 0; i < convolutions[block]; ++i) {
      const std::string scope =
          absl::StrCat(extractor.type(), "/conv", block + 1, "/conv", block + 1, "_", i + 1);
      last = builder->AddNormalizedOrBiased({scope, last, 3, 1, depth, hyperparams.activation},
                                            hyperparams);
    }
    last = builder->AddNode(absl::StrCat(extractor.type(), "/pool", block + 1),
                            op::MaxPool{Window{2, 2, {}}}, {last});
  }
  return last;
}

// Adds the dense layers before the last one. The first is a convolution whose window is the map.
int AddTop(const config::Classifier& classifier, int map, const LayerHyperparams& hyperparams,
           NetworkBuilder* builder) {
  const config::ClassifierFeatureExtractor& extractor = classifier.feature_extractor();
  const int depth = DepthOf(extractor, kDenseDepth);
  const int side = builder->shape(map).height;
  LayerRequest first{extractor.type() + "/fc6", map, side, 1, depth, hyperparams.activation};
  first.valid_padding = true;
  const int last = builder->AddNormalizedOrBiased(first, hyperparams);
  LayerRequest second{extractor.type() + "/fc7", last, 1, 1, depth, hyperparams.activation};
  second.keep_probability = classifier.dropout_keep_probability();
  return builder->AddNormalizedOrBiased(second, hyperparams);
}

// slim's initializer is Glorot's, with which the values shrink in layers with ReLU.
LayerHyperparams VggScope() {
  LayerHyperparams hyperparams;
  hyperparams.initializer = HeNormalInitializer();
  hyperparams.l2_weight = kL2Weight;
  hyperparams.activation = ActivationFunction::kRelu;
  hyperparams.batch_norm.reset();
  return hyperparams;
}

}  // namespace

ClassifierFamily VggClassifier(absl::string_view type) {
  return {std::string(type), AddBody, AddTop, "hidden", "fc8", VggScope};
}

}  // namespace pushpull
