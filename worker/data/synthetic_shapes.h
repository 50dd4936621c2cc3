// The shapes of the built-in data sets. Pure functions.
#ifndef PUSHPULL_WORKER_DATA_SYNTHETIC_SHAPES_H_
#define PUSHPULL_WORKER_DATA_SYNTHETIC_SHAPES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pushpull {

inline constexpr int kMaxSyntheticClasses = 12;

// "disc", "square", ...; 0 <= shape < kMaxSyntheticClasses.
absl::string_view SyntheticClassName(int shape);

// Of the first `count` shapes.
std::vector<std::string> SyntheticClassNames(int count);

// Whether (u, v), v downwards, belongs to the shape; every shape lies in the unit circle.
bool InsideShape(int shape, float u, float v);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_SYNTHETIC_SHAPES_H_
