// Tested by tests/common/model/ssd/ssd_network_test.cc.
#include "common/model/families/family.h"

namespace pushpull {

LayerHyperparams WithGammaAndBeta(LayerHyperparams hyperparams) {
  hyperparams.batch_norm->center = hyperparams.batch_norm->scale = true;
  return hyperparams;
}

}  // namespace pushpull
