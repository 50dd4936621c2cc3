// ToBfloat16 of many.
#ifndef PUSHPULL_KERNELS_CPU_ROUND_TO_BFLOAT16_H_
#define PUSHPULL_KERNELS_CPU_ROUND_TO_BFLOAT16_H_

#include "absl/types/span.h"

#include "kernels/bfloat16.h"

namespace pushpull {

// As the scalar formula (bfloat16.h); what is beyond bfloat16's range becomes infinite. `to` has as
// many elements as `from`.
void RoundToBfloat16(absl::Span<const float> from, absl::Span<Bfloat16> to);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_ROUND_TO_BFLOAT16_H_
