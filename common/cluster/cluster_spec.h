// Describes the processes of a training job and the role of this process among them. Only plain
// values: nothing here reads flags, the environment or the network.
//
// A ClusterView is what one source says (the flags, TF_CONFIG or Slurm's environment); any value
// may be missing. ResolveCluster (resolve_cluster.h) combines several views to one complete
// ClusterSpec. Every value carries the name of its source, so that an error message can say which
// sources contradict each other.
#ifndef PUSHPULL_COMMON_CLUSTER_CLUSTER_SPEC_H_
#define PUSHPULL_COMMON_CLUSTER_CLUSTER_SPEC_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pushpull {

enum class Role { kPs, kWorker, kEvaluator };

// Returns "ps", "worker" or "evaluator".
absl::string_view RoleName(Role role);
// Returns the program that has this role: "ps_server", "worker" or "evaluator".
absl::string_view ProgramOf(Role role);

// Environment variables by name: those of the process, or those that a test sets.
using Environment = std::map<std::string, std::string>;

template <typename T>
struct Sourced {
  T value = {};
  std::string source = {};  // "flag --worker_index", "TF_CONFIG", "SLURM_PROCID", "default"
};

struct ClusterView {
  // The role of this process and its index within the role. Where there is a chief, it is worker 0.
  // An evaluator is not part of the cluster: it has no index, and the counts below do not include
  // it.
  std::optional<Sourced<Role>> role;
  std::optional<Sourced<int>> index;
  // host:port (or unix:/path) of every ps task in order. A worker's flags may have only task 0,
  // which is then asked for the others.
  std::optional<Sourced<std::vector<std::string>>> ps;
  std::optional<Sourced<int>> num_ps;
  std::optional<Sourced<int>> num_workers;
  // The address of this ps task, from a source that does not have the addresses of all tasks.
  std::optional<Sourced<std::string>> own_address;
  // Says which values this source does not have and why ("TF_CONFIG is in the sparse form, in
  // which ..."). For the error message if such a value is needed. Empty: nothing to add.
  std::string gaps;
};

struct ClusterSpec {
  Role role = Role::kWorker;
  Sourced<int> index;  // of a ps_server: -1 if one process serves all tasks
  // For a worker: the addresses of all ps tasks, or only of task 0. For a ps_server: the addresses
  // of all tasks, or empty if one process serves them all.
  Sourced<std::vector<std::string>> ps;
  Sourced<int> num_ps;          // for a worker a lower bound; task 0 tells the number
  Sourced<int> num_workers;     // for a worker only
  Sourced<std::string> listen;  // for a ps_server only: where its first task listens

  // Returns one line for the log: every value with its source.
  std::string Describe() const;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLUSTER_CLUSTER_SPEC_H_
