// How TensorFlow slim rounds numbers of channels. Pure functions.
#ifndef PUSHPULL_COMMON_MODEL_FAMILIES_DEPTHS_H_
#define PUSHPULL_COMMON_MODEL_FAMILIES_DEPTHS_H_

namespace pushpull {

// Returns depth * multiplier, rounded down, but at least min_depth. This is slim's rule for
// MobileNetV1 and for the extra layers of SSD.
int ScaleDepth(double depth, double multiplier, int min_depth);

// Rounds to the multiple of `divisor` nearest to `value` (halves go up), but at least to `minimum`.
// If the result is below 90 % of `value`, adds `divisor`. This is slim's rule for MobileNetV2 and
// MobileNetV3.
int MakeDivisible(double value, int divisor, int minimum);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_FAMILIES_DEPTHS_H_
