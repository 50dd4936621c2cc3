// Tested by tests/common/cluster/resolve_cluster_test.cc.
#include "common/cluster/cluster_spec.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pushpull {

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kPs:
      return "ps";
    case Role::kWorker:
      return "worker";
    case Role::kEvaluator:
      return "evaluator";
  }
  return "?";
}

absl::string_view ProgramOf(Role role) { return role == Role::kPs ? "ps_server" : RoleName(role); }

std::string ClusterSpec::Describe() const {
  if (role == Role::kEvaluator) return "evaluator, no part of the cluster";
  const std::string tasks = absl::StrCat(absl::StrJoin(ps.value, ","), " (", ps.source, ")");
  if (role == Role::kWorker) {
    return absl::StrCat("worker ", index.value, " (", index.source, ") of ", num_workers.value,
                        " (", num_workers.source, "), ps at ", tasks);
  }
  const std::string place = absl::StrCat(", listening on ", listen.value, " (", listen.source, ")");
  if (index.value < 0) {
    return absl::StrCat("all ", num_ps.value, " ps tasks (", num_ps.source, ")", place);
  }
  return absl::StrCat("ps task ", index.value, " (", index.source, ") of ", num_ps.value, " (",
                      num_ps.source, ") at ", tasks, place);
}

}  // namespace pushpull
