// The compressed lists in Slurm's environment, expanded by ourselves: scontrol need not be there.
#ifndef PUSHPULL_COMMON_CLUSTER_SLURM_LISTS_H_
#define PUSHPULL_COMMON_CLUSTER_SLURM_LISTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

inline constexpr int kMaxSlurmNodes = 100000;
inline constexpr int kMaxSlurmTasks = 1000000;

// The host names of a compressed list in its order: "gnode[08-10,20],login" is gnode08, gnode09,
// gnode10, gnode20, login. Several bracket groups in one name ("r[1-2]n[1-3]") run like nested
// loops, the last one fastest. INVALID_ARGUMENT says what is malformed, and where.
absl::StatusOr<std::vector<std::string>> ExpandNodeList(absl::string_view list);

// "2(x3),1" is 2, 2, 2, 1. INVALID_ARGUMENT as above.
absl::StatusOr<std::vector<int>> ExpandTasksPerNode(absl::string_view text);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLUSTER_SLURM_LISTS_H_
