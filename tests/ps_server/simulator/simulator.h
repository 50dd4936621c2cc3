// Runs one schedule: servers, workers and the mischief between them, until training is done or an
// invariant is broken. The same seed gives the same run.
//
// Invariants (protocol): I1 same contributors on all shards, I2 each contribution at most once, I3
// no durable step is lost, I4 every version is the oracle's bit for bit, I5 old epochs and grants
// change nothing, I6 the durable step is monotone, I7 staged bytes are bounded, I8 once the world
// is calm training ends, I9 no end of a process removes the newest version unless a checkpoint
// holds it, I10 asynchronously each batch of a replica counts once and in order, over any restart.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIMULATOR_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIMULATOR_H_

#include <cstdint>
#include <string>

#include "tests/ps_server/simulator/sim_config.h"

namespace pushpull::sim {

struct SimResult {
  std::string violation;  // empty: none
  uint64_t events = 0;
  uint64_t messages = 0;
  uint64_t crashes = 0;
  uint64_t rollbacks = 0;
  uint64_t saves = 0;  // checkpoints that an operator asked for and got
  uint64_t evictions = 0;
  uint64_t moves = 0;        // of a server to a machine that has an older state file, or none
  uint64_t removals = 0;     // of a state file at the end of a process
  uint64_t early_pulls = 0;  // that brought a version before its push was answered
  uint64_t chunks_kept = 0;  // made ahead, and part of a version
  double seconds = 0;        // virtual
};

SimResult RunSchedule(const SimConfig& config);

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIMULATOR_H_
