// Describes where a NaN or infinity came from. Pure function.
#ifndef PUSHPULL_WORKER_CLIENT_NON_FINITE_H_
#define PUSHPULL_WORKER_CLIENT_NON_FINITE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "common/model/variable_layout.h"

namespace pushpull {

// Returns a phrase for messages that names the first non-finite weight in layout order, or else the
// first non-finite element of the gradient. Weights come first because a bad weight makes all
// gradients bad. Example: "non-finite loss; first non-finite gradient:
// MobilenetV2/Conv/weights[3] is nan".
// If both vectors are finite, the phrase contains `refusal`, the server's message, if there is one:
// a finite gradient can be too large for the encoding in which it is sent.
std::string DescribeNonFinite(const VariableLayout& layout, absl::Span<const float> weights,
                              absl::Span<const float> gradient, bool loss_is_finite,
                              absl::string_view refusal = "");

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_NON_FINITE_H_
