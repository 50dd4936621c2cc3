// Computes the initial values of variables.
#ifndef PUSHPULL_COMMON_MODEL_INITIALIZERS_H_
#define PUSHPULL_COMMON_MODEL_INITIALIZERS_H_

#include <cstdint>

#include "absl/types/span.h"

#include "common/base/random.h"
#include "common/model/variable_layout.h"

namespace pushpull {

// The initial values of one variable, which are a pure function of `seed`, its name and its
// initializer: neither other variables nor the sharding changes them.
class InitialValues {
 public:
  InitialValues(const VariableSpec& variable, uint64_t seed);
  // Fills `values` with the next ones, beginning with the first. In whatever parts they are taken,
  // they are the same.
  void Next(absl::Span<float> values);

 private:
  const Initializer initializer_;
  CounterRandom random_;
};

// Fills `flat`, which has layout.total_elements() elements (CHECK), with the InitialValues of all
// variables. Padding is set to zero. Thread-safe.
void InitializeVariables(const VariableLayout& layout, uint64_t seed, absl::Span<float> flat);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_INITIALIZERS_H_
