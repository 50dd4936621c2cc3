#include "common/cluster/slurm_environment.h"

#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/cluster/slurm_lists.h"

namespace pushpull {
namespace {

constexpr int kDefaultPort = 2222;
constexpr int kMaxPort = 65535;

// Reads variables; its errors name the variable.
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  const std::string* Find(const std::string& name) const {
    const auto it = environment_.find(name);
    return it == environment_.end() || it->second.empty() ? nullptr : &it->second;
  }
  bool Has(const std::string& name) const { return Find(name) != nullptr; }

  absl::StatusOr<int> Number(const std::string& name, int least, int most) const {
    const std::string* text = Find(name);
    if (text == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          name,
          " is not set; expected a number: start the tasks by one srun, whose ranks are ps "
          "tasks, workers and the evaluator"));
    }
    int value = 0;
    if (!absl::SimpleAtoi(*text, &value) || value < least || value > most) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, "=", *text, ": expected a number from ", least, " to ", most));
    }
    return value;
  }

  absl::StatusOr<int> NumberOr(const std::string& name, int least, int most, int otherwise) const {
    if (!Has(name)) return otherwise;
    return Number(name, least, most);
  }

 private:
  const Environment& environment_;
};

absl::Status Named(const std::string& variable, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(variable, "=", status.message()));
}

// The distribution of the ranks over the nodes, in blocks.
struct Layout {
  std::vector<std::string> nodes;
  std::vector<int> tasks_per_node;

  struct Place {
    int node = 0;
    int local = 0;
  };
  Place Find(int rank) const {
    Place place{0, rank};
    while (place.local >= tasks_per_node[place.node]) place.local -= tasks_per_node[place.node++];
    return place;
  }
};

// Returns the variable of the job step if it is set, otherwise that of the job.
std::string StepOrJob(const Reader& reader, const std::string& step, const std::string& job) {
  return reader.Has(step) ? step : job;
}

absl::StatusOr<Layout> ReadLayout(const Reader& reader, int num_tasks) {
  const std::string list = StepOrJob(reader, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  if (!reader.Has(list)) {
    return absl::InvalidArgumentError(absl::StrCat(list, " is not set; expected the job's hosts"));
  }
  Layout layout;
  absl::StatusOr<std::vector<std::string>> nodes = ExpandNodeList(*reader.Find(list));
  if (!nodes.ok()) return Named(list, nodes.status());
  layout.nodes = *std::move(nodes);
  const int num_nodes = static_cast<int>(layout.nodes.size());
  const std::string counts = StepOrJob(reader, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  if (!reader.Has(counts)) {
    if (num_tasks % num_nodes != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(counts, " is not set, and SLURM_NTASKS=", num_tasks,
                       " tasks are not spread evenly over ", num_nodes, " nodes of ", list));
    }
    layout.tasks_per_node.assign(num_nodes, num_tasks / num_nodes);
    return layout;
  }
  absl::StatusOr<std::vector<int>> tasks = ExpandTasksPerNode(*reader.Find(counts));
  if (!tasks.ok()) return Named(counts, tasks.status());
  layout.tasks_per_node = *std::move(tasks);
  int64_t total = 0;
  for (const int count : layout.tasks_per_node) total += count;
  if (static_cast<int>(layout.tasks_per_node.size()) != num_nodes || total != num_tasks) {
    return absl::InvalidArgumentError(absl::StrCat(counts, "=", *reader.Find(counts), " is ", total,
                                                   " tasks on ", layout.tasks_per_node.size(),
                                                   " nodes, expected SLURM_NTASKS=", num_tasks,
                                                   " on ", num_nodes, " nodes of ", list));
  }
  return layout;
}

// Checks that the place computed for this rank is the one where Slurm has put it. A distribution
// other than blocks would make the computed addresses of the ps tasks wrong.
absl::Status CheckOwnPlace(const Reader& reader, const Layout& layout, int rank) {
  const Layout::Place place = layout.Find(rank);
  PP_ASSIGN_OR_RETURN(const int node,
                      reader.NumberOr("SLURM_NODEID", 0, kMaxSlurmTasks, place.node));
  PP_ASSIGN_OR_RETURN(const int local,
                      reader.NumberOr("SLURM_LOCALID", 0, kMaxSlurmTasks, place.local));
  if (node == place.node && local == place.local) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "SLURM_NODEID=", node, " and SLURM_LOCALID=", local, " of rank SLURM_PROCID=", rank,
      ": expected node ", place.node, " and local task ", place.local,
      ", ranks in blocks: give srun --distribution=block"));
}

}  // namespace

absl::StatusOr<ClusterView> ReadSlurmEnvironment(const Environment& environment) {
  const Reader reader(environment);
  ClusterView view;
  if (!reader.Has("SLURM_JOB_ID") && !reader.Has("SLURM_PROCID")) return view;
  if (!reader.Has("PUSHPULL_PS_TASKS")) {
    view.gaps =
        "Slurm's environment describes a cluster only with PUSHPULL_PS_TASKS and "
        "PUSHPULL_WORKERS, which are not set";
    return view;
  }
  PP_ASSIGN_OR_RETURN(const int num_tasks, reader.Number("SLURM_NTASKS", 1, kMaxSlurmTasks));
  PP_ASSIGN_OR_RETURN(const int rank, reader.Number("SLURM_PROCID", 0, num_tasks - 1));
  PP_ASSIGN_OR_RETURN(const int num_ps, reader.Number("PUSHPULL_PS_TASKS", 1, kMaxSlurmTasks));
  PP_ASSIGN_OR_RETURN(const int num_workers, reader.Number("PUSHPULL_WORKERS", 1, kMaxSlurmTasks));
  PP_ASSIGN_OR_RETURN(const int port,
                      reader.NumberOr("PUSHPULL_PS_PORT", 1, kMaxPort, kDefaultPort));
  if (num_tasks != num_ps + num_workers && num_tasks != num_ps + num_workers + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("SLURM_NTASKS=", num_tasks, ": expected PUSHPULL_PS_TASKS=", num_ps,
                     " and PUSHPULL_WORKERS=", num_workers, ", with or without one evaluator"));
  }
  PP_ASSIGN_OR_RETURN(const Layout layout, ReadLayout(reader, num_tasks));
  PP_RETURN_IF_ERROR(CheckOwnPlace(reader, layout, rank));

  std::vector<std::string> addresses;
  for (int task = 0; task < num_ps; ++task) {
    const Layout::Place place = layout.Find(task);
    if (port + place.local > kMaxPort) {
      return absl::InvalidArgumentError(absl::StrCat("PUSHPULL_PS_PORT=", port,
                                                     " leaves no port for local task ", place.local,
                                                     "; choose a lower one"));
    }
    addresses.push_back(absl::StrCat(layout.nodes[place.node], ":", port + place.local));
  }
  const std::string rank_source = "SLURM_PROCID";
  if (rank < num_ps) {
    view.role = {Role::kPs, rank_source};
    view.index = {rank, rank_source};
  } else if (rank < num_ps + num_workers) {
    view.role = {Role::kWorker, rank_source};
    view.index = {rank - num_ps, rank_source};
  } else {
    view.role = {Role::kEvaluator, rank_source};
  }
  view.ps = {std::move(addresses), StepOrJob(reader, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")};
  view.num_ps = {num_ps, "PUSHPULL_PS_TASKS"};
  view.num_workers = {num_workers, "PUSHPULL_WORKERS"};
  return view;
}

}  // namespace pushpull
