// Tested by tests/common/model/ssd_mobilenet_test.cc.
#include "common/model/families/mobilenet_v1.h"

#include <iterator>

#include "absl/strings/str_cat.h"

#include "common/model/families/depths.h"

namespace pushpull {
namespace {

struct BlockRow {
  int depth;
  int stride;
};

// Table 1 of the paper: a convolution, then thirteen depthwise separable convolutions.
constexpr int kFirstDepth = 32;
constexpr BlockRow kBlocks[] = {{64, 1},  {128, 2},  {128, 1}, {256, 2}, {256, 1},
                                {512, 2}, {512, 1},  {512, 1}, {512, 1}, {512, 1},
                                {512, 1}, {1024, 2}, {1024, 1}};

}  // namespace

MobilenetV1Endpoints AddMobilenetV1Body(const std::string& scope, double multiplier, int min_depth,
                                        const LayerHyperparams& hyperparams,
                                        NetworkBuilder* builder) {
  const auto depth = [multiplier, min_depth](int full) {
    return ScaleDepth(full, multiplier, min_depth);
  };
  MobilenetV1Endpoints endpoints;
  int last = builder->AddNormalized(
      {scope + "/Conv2d_0", Node::kImage, 3, 2, depth(kFirstDepth), hyperparams.activation},
      hyperparams);
  for (size_t i = 0; i < std::size(kBlocks); ++i) {
    const std::string block = absl::StrCat(scope, "/Conv2d_", i + 1);
    last = builder->AddNormalizedDepthwise(
        {block + "_depthwise", last, 3, kBlocks[i].stride, 0, hyperparams.activation}, hyperparams);
    last = builder->AddNormalized(
        {block + "_pointwise", last, 1, 1, depth(kBlocks[i].depth), hyperparams.activation},
        hyperparams);
    if (i + 1 == 11) endpoints.conv2d_11_pointwise = last;
  }
  endpoints.conv2d_13_pointwise = last;
  return endpoints;
}

}  // namespace pushpull
