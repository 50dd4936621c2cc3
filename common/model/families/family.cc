// Tested by tests/common/model/ssd/ssd_network_test.cc.
#include "common/model/families/family.h"

namespace pushpull {
namespace {

// The decay that the API's detectors use instead of slim's.
constexpr float kDetectorDecay = 0.9997f;

}  // namespace

LayerHyperparams MobilenetScope(bool keras) {
  LayerHyperparams hyperparams = SlimHyperparams();
  hyperparams.regularize_depthwise = keras;
  hyperparams.batch_norm->decay = kDetectorDecay;
  return hyperparams;
}

LayerHyperparams WithGammaAndBeta(LayerHyperparams hyperparams) {
  hyperparams.batch_norm->center = hyperparams.batch_norm->scale = true;
  return hyperparams;
}

}  // namespace pushpull
