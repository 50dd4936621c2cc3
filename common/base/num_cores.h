// Says how many threads a computation should have by default.
#ifndef PUSHPULL_COMMON_BASE_NUM_CORES_H_
#define PUSHPULL_COMMON_BASE_NUM_CORES_H_

namespace pushpull {

// Returns the number of processor cores on which the calling thread may run, at least 1. That is
// fewer than the machine has if taskset, Slurm or the cpuset of a container binds the process to
// some. A quota of processor time (the CPU limit of a container) does not count. Thread-safe.
int NumCores();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_NUM_CORES_H_
