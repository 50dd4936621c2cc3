// What this machine reaches at most, as a micro-benchmark shows it: the limits that a table of
// operators is compared with.
#ifndef PUSHPULL_SCRIPTS_BENCH_STEP_MACHINE_LIMITS_H_
#define PUSHPULL_SCRIPTS_BENCH_STEP_MACHINE_LIMITS_H_

#include "common/base/thread_pool.h"
#include "worker/model/network_runner.h"

namespace pushpull {

struct MachineLimits {
  // Multiply-adds count as two operations. They read registers only, with the instruction set
  // ChosenCpuIsa(); in bf16 they are dot products or products of tiles where it has them.
  double flops_per_second = 0.0;
  // Bytes that are read plus bytes that are written while each thread copies memory that is far
  // larger than the caches.
  double bytes_per_second = 0.0;
};

// Measures for a third of a second with all threads of the pool. Returns the best of several tries.
MachineLimits MeasureLimits(Precision precision, ThreadPool* pool);

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_STEP_MACHINE_LIMITS_H_
