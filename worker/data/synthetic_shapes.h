// The shapes that the generated data sets draw.
//
// Thread rule: functions without shared state.
#ifndef PUSHPULL_WORKER_DATA_SYNTHETIC_SHAPES_H_
#define PUSHPULL_WORKER_DATA_SYNTHETIC_SHAPES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/config/reader_checks.h"

namespace pushpull {

// Returns "disc", "square" and so on. CHECKs that 0 <= shape < kMaxSyntheticClasses.
absl::string_view SyntheticClassName(int shape);

// Returns the names of the first `count` shapes.
std::vector<std::string> SyntheticClassNames(int count);

// Returns whether the point (u, v) is part of the shape. v points downwards. Every shape lies
// within the unit circle around (0, 0).
bool InsideShape(int shape, float u, float v);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_SYNTHETIC_SHAPES_H_
