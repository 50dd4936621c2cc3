// Computes the initial values of all variables. Thread-safe.
#ifndef PUSHPULL_COMMON_MODEL_INITIALIZERS_H_
#define PUSHPULL_COMMON_MODEL_INITIALIZERS_H_

#include <cstdint>

#include "absl/types/span.h"

#include "common/model/variable_layout.h"

namespace pushpull {

// Fills `flat`, which has layout.total_elements() elements (CHECK). The values of a variable are a
// pure function of `seed`, its name, its shape and its initializer. They do not depend on the other
// variables or on the sharding. Padding is set to zero.
void InitializeVariables(const VariableLayout& layout, uint64_t seed, absl::Span<float> flat);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_INITIALIZERS_H_
