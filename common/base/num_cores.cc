#include "common/base/num_cores.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace pushpull {

int NumCores() {
  cpu_set_t cores;
  // This fails on a machine with more than 1,024 cores.
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace pushpull
