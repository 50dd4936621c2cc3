// What Slurm tells a process that srun has started: its rank, the layout of the ranks over the
// nodes, and with two variables of ours the whole cluster. Pure functions; nothing asks scontrol.
//
// One job step starts all tasks of a training job, in this order of ranks: ps tasks, workers, and
// last the evaluator where there is one. How many ranks are which, Slurm cannot know; the batch
// script exports it (deploy/slurm/train.sbatch):
//
//     PUSHPULL_PS_TASKS  ps tasks; without it Slurm's environment describes no cluster
//     PUSHPULL_WORKERS   workers
//     PUSHPULL_PS_PORT   of a node's first rank, 2222 if not set; a ps task listens on it plus its
//                        SLURM_LOCALID
//
// Ranks are laid out in blocks (srun --distribution=block), each node's one after the other; a
// process that finds itself elsewhere refuses.
#ifndef PUSHPULL_COMMON_CLUSTER_SLURM_ENVIRONMENT_H_
#define PUSHPULL_COMMON_CLUSTER_SLURM_ENVIRONMENT_H_

#include <string>

#include "absl/status/statusor.h"

#include "common/cluster/cluster_spec.h"

namespace pushpull {

// A view without a role where Slurm describes no cluster (`gaps` says why, if Slurm is there at
// all). INVALID_ARGUMENT: malformed or contradictory, naming the variable.
absl::StatusOr<ClusterView> ReadSlurmEnvironment(const Environment& environment);

// One line for the log: "job 42, rank 3 of 5 on gnode07, restarted once"; empty without Slurm.
std::string DescribeSlurmTask(const Environment& environment);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLUSTER_SLURM_ENVIRONMENT_H_
