// Reads the cluster from the environment of a process that srun has started. Slurm tells the rank
// of the process and how the ranks are distributed over the nodes. Pure functions; scontrol is not
// called.
//
// One job step starts all processes of a training job. Their ranks are, in this order, the ps
// tasks, the workers, and one evaluator or none. Slurm does not know how many there are of each, so
// the batch script (deploy/slurm/train.sbatch) exports
//
//     PUSHPULL_PS_TASKS  the number of ps tasks; if it is not set, the view is empty
//     PUSHPULL_WORKERS   the number of workers
//     PUSHPULL_PS_PORT   the first port on each node, by default 2222; a ps task listens on this
//                        port plus its SLURM_LOCALID
//
// The ranks must be distributed in blocks (srun --distribution=block): the first ranks on the first
// node, the next ones on the second. A process that Slurm has placed elsewhere returns an error.
#ifndef PUSHPULL_COMMON_CLUSTER_SLURM_ENVIRONMENT_H_
#define PUSHPULL_COMMON_CLUSTER_SLURM_ENVIRONMENT_H_

#include "absl/status/statusor.h"

#include "common/cluster/cluster_spec.h"

namespace pushpull {

// Returns an empty view without Slurm, and one with only `gaps` set without PUSHPULL_PS_TASKS.
// INVALID_ARGUMENT: a variable, which the message names, is missing, malformed or contradicts
// another one.
absl::StatusOr<ClusterView> ReadSlurmEnvironment(const Environment& environment);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLUSTER_SLURM_ENVIRONMENT_H_
