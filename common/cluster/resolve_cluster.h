// Combines the flags and the environment to the ClusterSpec of a program. Pure functions: the main
// functions read flags and environment and pass them in.
//
// Each value comes from the first source that has it: the flags, then the environment (TF_CONFIG if
// it is set, otherwise Slurm's variables), then the default, which is a job on this machine alone.
//
// INVALID_ARGUMENT: the process was started for another role, an index is out of range, a needed
// value is missing, or two sources contradict each other. The message names the sources; main
// functions exit with kExitUsage.
#ifndef PUSHPULL_COMMON_CLUSTER_RESOLVE_CLUSTER_H_
#define PUSHPULL_COMMON_CLUSTER_RESOLVE_CLUSTER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/cluster/cluster_spec.h"

namespace pushpull {

inline constexpr char kDefaultPsAddress[] = "127.0.0.1:2222";

// Returns what the environment says to a process of this role. The view is empty without a
// scheduler. INVALID_ARGUMENT: a variable, which the message names, is malformed.
absl::StatusOr<ClusterView> ReadClusterEnvironment(Role role, const Environment& environment);

// Combines the two views. `listen` is ps_server's --listen, if given. Otherwise a ps task listens
// on its address if that is a loopback address or a unix socket, and else on 0.0.0.0 with the same
// port, because in Kubernetes a pod may be unable to resolve its name.
absl::StatusOr<ClusterSpec> ResolveCluster(Role role, const ClusterView& flags,
                                           const std::optional<std::string>& listen,
                                           const ClusterView& environment);

// ReadClusterEnvironment and ResolveCluster in one call, for main functions.
absl::StatusOr<ClusterSpec> FindCluster(Role role, const ClusterView& flags,
                                        const std::optional<std::string>& listen,
                                        const Environment& environment);

// Checks the form of the addresses of ps tasks, which begin with task 0, as ResolveCluster does.
// For a program that is not part of the cluster but calls it. INVALID_ARGUMENT: the message names
// the source and an address that is neither host:port with a port from 1 to 65535 nor a unix:/path
// that UnixSocketPath takes, or that two tasks have.
absl::Status CheckPsAddresses(const Sourced<std::vector<std::string>>& ps);

// Checks that the environment does not assign another role to this process. For a program that is
// not part of the cluster but may be started by the same scheduler. INVALID_ARGUMENT: it does, or a
// variable is malformed.
absl::Status CheckRole(Role role, const Environment& environment);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLUSTER_RESOLVE_CLUSTER_H_
