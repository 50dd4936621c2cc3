// Tested by tests/worker/client/local_steps_source_test.cc.
#include "worker/client/gradient_source.h"

#include <new>

#include "absl/strings/str_cat.h"

namespace pushpull {

absl::StatusOr<std::shared_ptr<float>> NewVector(int64_t elements) {
  constexpr auto kAlignment = std::align_val_t(kVectorAlignment);
  float* const vector = new (kAlignment, std::nothrow) float[elements]();
  if (vector == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there is no memory for a vector of ", elements, " float32"));
  }
  return std::shared_ptr<float>(vector, [](float* p) { operator delete[](p, kAlignment); });
}

}  // namespace pushpull
