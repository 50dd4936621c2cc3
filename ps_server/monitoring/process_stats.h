// ReadProcessStats returns what the operating system knows about this process: the values of the
// standard process_* metrics.
#ifndef PUSHPULL_PS_SERVER_MONITORING_PROCESS_STATS_H_
#define PUSHPULL_PS_SERVER_MONITORING_PROCESS_STATS_H_

#include <cstdint>

namespace pushpull {

struct ProcessStats {
  double cpu_seconds = 0.0;  // user and system time of all threads
  double start_unix_seconds = 0.0;
  uint64_t resident_bytes = 0;  // mapped variables included
  uint64_t virtual_bytes = 0;
  uint64_t open_descriptors = 0;
  uint64_t max_descriptors = 0;  // the soft limit
  uint64_t threads = 0;
};

// Reads /proc/self. A value that cannot be read is 0. Takes well under a millisecond. Thread-safe.
ProcessStats ReadProcessStats();

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_PROCESS_STATS_H_
