// Says where a NaN or infinity came from.
#ifndef PUSHPULL_WORKER_TRAIN_NON_FINITE_H_
#define PUSHPULL_WORKER_TRAIN_NON_FINITE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "common/variable_layout.h"

namespace pushpull {

// A sentence that names the first non-finite variable in layout order: a weight before a gradient,
// as a bad weight makes all gradients bad. "non-finite loss, first non-finite gradient
// MobilenetV2/Conv/weights[3]". Where there is none, what the server has refused, if anything: a
// gradient can be too large for the encoding it is sent in.
std::string DescribeNonFinite(const VariableLayout& layout, absl::Span<const float> weights,
                              absl::Span<const float> gradient, bool loss_is_finite,
                              absl::string_view refusal = "");

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_NON_FINITE_H_
