// TF_CONFIG, the environment variable by which Kubeflow's TFJob and others tell a process its
// cluster and its part. Functions only; the caller reads the environment.
//
// Two forms. The dense one lists every job's addresses in an array:
//   {"cluster": {"ps": ["p0:2222"], "worker": ["w0:2222"]}, "task": {"type": "ps", "index": 0}}
// The sparse one (TFJob's enableDynamicWorker, whose key is "sparseCluster") has an object from
// index to address in place of "worker" and tells each process only what it needs: a worker itself
// and all ps tasks, a ps task itself alone.
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
  // Index -> host:port. `evaluator` is dropped: it is no part of the training cluster. `master` and
  // `chief` mean the same.
  std::map<int64_t, std::string> ps;
  std::map<int64_t, std::string> workers;
  std::map<int64_t, std::string> chief;
  bool sparse = false;
  std::optional<std::string> task_type;  // "ps", "worker", "chief" or "evaluator"
  int64_t task_index = 0;
};

// INVALID_ARGUMENT says what is malformed: not JSON, an address that is no string, an unknown task
// type, a task index that the cluster does not have.
absl::StatusOr<TfConfig> ParseTfConfig(absl::string_view json);

// What a TF_CONFIG says to a process that plays `role`. An evaluator gets its role and nothing
// else, whatever the rest looks like. The chief, where there is one, is worker 0, and the workers
// follow.
absl::StatusOr<ClusterView> ReadTfConfig(Role role, absl::string_view json);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLUSTER_TF_CONFIG_H_
