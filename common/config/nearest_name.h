// Suggests the correct spelling of an unknown field or flag name. Thread-safe functions.
#ifndef PUSHPULL_COMMON_CONFIG_NEAREST_NAME_H_
#define PUSHPULL_COMMON_CONFIG_NEAREST_NAME_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pushpull {

// Returns the candidate with the fewest single-character edits (insert, delete, replace, or swap of
// two neighbours) from `name`. If several have the same distance, the first one wins. Returns
// nothing if every candidate needs more edits than a third of the length of `name` (at least one
// edit is always allowed).
std::optional<std::string> NearestName(absl::string_view name,
                                       const std::vector<std::string>& candidates);

// Returns "; did you mean \"x\"?" with the nearest name, or an empty string if there is none.
std::string DidYouMean(absl::string_view name, const std::vector<std::string>& candidates);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_NEAREST_NAME_H_
