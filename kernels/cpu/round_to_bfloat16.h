// Rounds vectors of floats to Bfloat16 (AVX2).
#ifndef PUSHPULL_KERNELS_CPU_ROUND_TO_BFLOAT16_H_
#define PUSHPULL_KERNELS_CPU_ROUND_TO_BFLOAT16_H_

#include "absl/types/span.h"

#include "kernels/bfloat16.h"

namespace pushpull {

// Sets to[i] = ToBfloat16(from[i]), bit for bit (bfloat16.h). Values beyond the range of Bfloat16
// become infinite. `to` must have as many elements as `from` (CHECK). A pure function.
void RoundToBfloat16(absl::Span<const float> from, absl::Span<Bfloat16> to);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_ROUND_TO_BFLOAT16_H_
