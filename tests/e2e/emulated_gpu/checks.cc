// Takes the place of kernels/cuda/emulation/checks.cc in the programs with emulated GPUs. Their
// tests are about the programs: cuda_emulated_test and model_test run the kernels with all checks,
// which would double the time here. scripts/test.sh --full makes them here, too.
#include "kernels/cuda/emulation/checks.h"

#include "tests/testkit/full_run.h"

namespace pushpull::emulation {

bool ChecksAreOn() {
  static const bool on = IsFullRun();
  return on;
}

}  // namespace pushpull::emulation
