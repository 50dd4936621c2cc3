// Parses TF_CONFIG, the environment variable with which Kubeflow's TFJob and others tell a process
// the cluster and its role in it. Pure functions; the caller reads the environment.
//
// TF_CONFIG has two forms. The dense form lists the addresses of each role in an array:
//   {"cluster": {"ps": ["p0:2222"], "worker": ["w0:2222"]}, "task": {"type": "ps", "index": 0}}
// The sparse form (TFJob's enableDynamicWorker, with the key "sparseCluster") has an object from
// index to address in place of the array of workers. It tells a process only what it needs: a
// worker learns its address and those of all ps tasks, a ps task only its address.
#ifndef PUSHPULL_COMMON_CLUSTER_TF_CONFIG_H_
#define PUSHPULL_COMMON_CLUSTER_TF_CONFIG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/cluster/cluster_spec.h"

namespace pushpull {

struct TfConfig {
  // host:port by index. "evaluator" is ignored, because it is not part of the training cluster.
  // "master" means the same as "chief".
  std::map<int64_t, std::string> ps;
  std::map<int64_t, std::string> workers;
  std::map<int64_t, std::string> chief;
  bool sparse = false;
  std::optional<std::string> task_type;  // "ps", "worker", "chief" or "evaluator"
  int64_t task_index = 0;
};

// INVALID_ARGUMENT: not JSON, an address that is not a string, an unknown role or task type, or a
// task index that the cluster does not have. The message says where.
absl::StatusOr<TfConfig> ParseTfConfig(absl::string_view json);

// Returns what a TF_CONFIG says to a process with this role. If there is a chief, it becomes worker
// 0 and the workers follow. The view has only a role if TF_CONFIG assigns another role to the
// process, and for an evaluator, for which "cluster" is not even parsed. INVALID_ARGUMENT: as for
// ParseTfConfig, or indices of ps tasks are missing.
absl::StatusOr<ClusterView> ReadTfConfig(Role role, absl::string_view json);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLUSTER_TF_CONFIG_H_
