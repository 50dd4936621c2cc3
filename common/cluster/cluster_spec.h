// Who takes part in a training job, and which part is this process's. Values only: nothing here
// reads flags, the environment or the network.
//
// A ClusterView is what one description says (the flags, TF_CONFIG, Slurm's environment), with
// gaps. ResolveCluster (resolve_cluster.h) makes of several views the one ClusterSpec that a
// program goes by. Every value carries the name of its source, so that a refusal can say who said
// what.
#ifndef PUSHPULL_COMMON_CLUSTER_CLUSTER_SPEC_H_
#define PUSHPULL_COMMON_CLUSTER_CLUSTER_SPEC_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pushpull {

enum class Role { kPs, kWorker, kEvaluator };

// "ps", "worker", "evaluator"; and the program that plays it: "ps_server", ...
absl::string_view RoleName(Role role);
absl::string_view ProgramOf(Role role);

// The process's environment variables, or a test's.
using Environment = std::map<std::string, std::string>;

template <typename T>
struct Sourced {
  T value = {};
  std::string source = {};  // "flag --worker_index", "TF_CONFIG", "SLURM_PROCID", "default"
};

struct ClusterView {
  // Of this process. The evaluator is no part of the cluster: its index means nothing, and it is
  // never counted below.
  std::optional<Sourced<Role>> role;
  std::optional<Sourced<int>> index;  // within the role; worker 0 is the chief where there is one
  // host:port (or unix:/path) of every ps task in order. In a worker's flags one may stand for all:
  // task 0 tells the others.
  std::optional<Sourced<std::vector<std::string>>> ps;
  std::optional<Sourced<int>> num_ps;
  std::optional<Sourced<int>> num_workers;
  // Of this ps task, where the description does not have them all.
  std::optional<Sourced<std::string>> own_address;
  // For the refusal when a value is missing: what this description does not tell, and why
  // ("TF_CONFIG is in the sparse form, which ..."). Empty: nothing to add.
  std::string gaps;
};

struct ClusterSpec {
  Role role = Role::kWorker;
  Sourced<int> index;  // ps: -1 when one process serves all tasks
  // Worker: of all ps tasks, or of task 0 alone. Ps: of all tasks; empty when one process serves
  // them.
  Sourced<std::vector<std::string>> ps;
  Sourced<int> num_ps;          // of a worker: at least 1, task 0 knows better
  Sourced<int> num_workers;     // of a worker
  Sourced<std::string> listen;  // of a ps_server: where its first task listens

  // One line for the log: every value with its source.
  std::string Describe() const;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLUSTER_CLUSTER_SPEC_H_
