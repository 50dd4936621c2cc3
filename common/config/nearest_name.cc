// Tested by tests/common/config/pipeline_config_test.cc.
#include "common/config/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

// Returns the optimal string alignment distance: the edit distance with swaps of neighbours.
int64_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<int64_t>> d(a.size() + 1, std::vector<int64_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int64_t>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t replace = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({replace, d[i - 1][j] + 1, d[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::optional<std::string> NearestName(absl::string_view name,
                                       const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  int64_t best_distance = std::max<int64_t>(1, static_cast<int64_t>(name.size()) / 3) + 1;
  for (const std::string& candidate : candidates) {
    // The difference of the lengths is a lower bound of the distance. This test bounds the cost of
    // very long names.
    const int64_t longer =
        static_cast<int64_t>(name.size()) - static_cast<int64_t>(candidate.size());
    if (std::abs(longer) >= best_distance) continue;
    const int64_t distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string DidYouMean(absl::string_view name, const std::vector<std::string>& candidates) {
  const std::optional<std::string> nearest = NearestName(name, candidates);
  return nearest.has_value() ? absl::StrCat("; did you mean \"", *nearest, "\"?") : "";
}

}  // namespace pushpull
