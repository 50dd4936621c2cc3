// Expands the compressed lists in Slurm's environment, without the help of scontrol, which may be
// missing in a container. Pure functions.
#ifndef PUSHPULL_COMMON_CLUSTER_SLURM_LISTS_H_
#define PUSHPULL_COMMON_CLUSTER_SLURM_LISTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

inline constexpr int kMaxSlurmNodes = 100000;
inline constexpr int kMaxSlurmTasks = 1000000;

// Returns the host names of a compressed list, in its order: "gnode[08-10,20],login" becomes
// gnode08, gnode09, gnode10, gnode20, login. If a name has several bracket groups ("r[1-2]n[1-3]"),
// the last group varies fastest. INVALID_ARGUMENT: the list is malformed, or has more than
// kMaxSlurmNodes hosts.
absl::StatusOr<std::vector<std::string>> ExpandNodeList(absl::string_view list);

// Returns 2, 2, 2, 1 for "2(x3),1". INVALID_ARGUMENT: as for ExpandNodeList.
absl::StatusOr<std::vector<int>> ExpandTasksPerNode(absl::string_view text);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLUSTER_SLURM_LISTS_H_
