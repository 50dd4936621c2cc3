// From what flags and environment say to the one ClusterSpec that a program goes by. Pure
// functions: mains read flags and environment and hand them in.
//
// Value by value, the first that speaks counts: the flags, then the environment's description
// (TF_CONFIG if it is set, else Slurm's), then the default, which is a job on this machine alone. A
// process that was started for another role, an index that is not there, two sources that cannot
// both be right: refused with INVALID_ARGUMENT that names the sources (mains exit with kExitUsage).
#ifndef PUSHPULL_COMMON_CLUSTER_RESOLVE_CLUSTER_H_
#define PUSHPULL_COMMON_CLUSTER_RESOLVE_CLUSTER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/cluster/cluster_spec.h"

namespace pushpull {

inline constexpr char kDefaultPsAddress[] = "127.0.0.1:2222";

// What the environment says to a process of the role: nothing where no scheduler speaks.
// INVALID_ARGUMENT: malformed, naming the variable.
absl::StatusOr<ClusterView> ReadClusterEnvironment(Role role, const Environment& environment);

// `listen` is ps_server's flag, where given; else the task's own address decides: itself if that is
// a loopback address or a unix socket, 0.0.0.0 and its port if not (in Kubernetes a pod need not
// resolve its own name).
absl::StatusOr<ClusterSpec> ResolveCluster(Role role, const ClusterView& flags,
                                           const std::optional<std::string>& listen,
                                           const ClusterView& environment);

// Both in one, for mains.
absl::StatusOr<ClusterSpec> FindCluster(Role role, const ClusterView& flags,
                                        const std::optional<std::string>& listen,
                                        const Environment& environment);

// A program that takes no part in the cluster but may be started by the same scheduler: refuses
// another role's environment, reads nothing else of it.
absl::Status CheckRole(Role role, const Environment& environment);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLUSTER_RESOLVE_CLUSTER_H_
