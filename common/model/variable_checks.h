// Finds non-finite values in a flat vector of variables or gradients, and computes the L2 term of
// the loss. Pure functions.
#ifndef PUSHPULL_COMMON_MODEL_VARIABLE_CHECKS_H_
#define PUSHPULL_COMMON_MODEL_VARIABLE_CHECKS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"

#include "common/model/variable_layout.h"

namespace pushpull {

struct NonFiniteValue {
  std::string variable;
  int64_t index = 0;  // within the variable
  float value = 0.0f;
  std::string ToString() const;  // "MobilenetV2/Conv/weights[17] is nan"
};

// The first infinity or NaN in layout order, if there is one. `flat` must have
// layout.total_elements() (CHECKed).
std::optional<NonFiniteValue> FindNonFinite(const VariableLayout& layout,
                                            absl::Span<const float> flat);

// The L2 term of the loss: the sum of 0.5 * l2_weight * |w|^2 over the variables, in double.
// `variables` must have layout.total_elements() (CHECKed).
double RegularizationLoss(const VariableLayout& layout, absl::Span<const float> variables);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_VARIABLE_CHECKS_H_
