// Tested by tests/common/model/families/mobilenet_v3_test.cc.
// Tested by tests/common/model/families/mobiledet_test.cc.
#include "common/model/families/squeeze_excite.h"

namespace pushpull {

int AddSqueezeExcite(const SqueezeExciteRequest& request, const LayerHyperparams& hyperparams,
                     NetworkBuilder* builder) {
  const std::string& scope = request.scope;
  const int channels = builder->shape(request.input).channels;
  int gate = builder->AddNode(scope + "/AvgPool", op::GlobalAveragePool(), {request.input});
  gate = builder->AddBiased({scope + "/Conv", gate, 1, 1, request.depth, request.activation},
                            hyperparams);
  gate = builder->AddBiased({scope + "/Conv_1", gate, 1, 1, channels, request.gate}, hyperparams);
  return builder->AddNode(scope + "/mul", op::Multiply(), {request.input, gate});
}

}  // namespace pushpull
