// The simulator of the parameter-server protocol. It runs the state machines of ps_server/core in
// simulated processes (SimServer, SimWorker), in virtual time and in one thread. Messages are lost,
// duplicated and delayed, and processes are killed, paused and cut off from the network. Threads,
// files, sockets and the wire format are not modelled. The same config gives the same run.
//
// A run checks these invariants (docs/PROTOCOL.md):
//   I1   All shards apply the same contributors in each version.
//   I2   Each contribution is applied at most once.
//   I3   Recovery loses no durable step.
//   I4   Every version equals the oracle's version (toy_model.h), bit for bit.
//   I5   Messages of old epochs and old grants change nothing.
//   I6   The durable step never goes back.
//   I7   The number of staged bytes is bounded.
//   I8   Training ends once the faults have stopped.
//   I9   A process that ends removes the newest version only if a checkpoint holds it.
//   I10  Async: each batch of a replica is applied once and in order, across restarts.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIMULATOR_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIMULATOR_H_

#include <cstdint>
#include <string>

#include "tests/ps_server/simulator/sim_config.h"

namespace pushpull::sim {

// What happened in one run.
struct SimResult {
  std::string violation;  // The first violation of an invariant, or empty.
  uint64_t events = 0;
  uint64_t messages = 0;
  uint64_t crashes = 0;
  uint64_t rollbacks = 0;
  uint64_t saves = 0;  // Checkpoints that an administrator requested and got.
  uint64_t evictions = 0;
  uint64_t scales = 0;
  uint64_t divisions = 0;
  uint64_t moves = 0;        // Restarts of a server on the other machine.
  uint64_t removals = 0;     // State files removed by a process that ended.
  uint64_t early_pulls = 0;  // Early pulls that returned a version.
  uint64_t chunks_kept = 0;  // Chunks made ahead that became part of a version.
  double seconds = 0;        // Virtual time.
};

// Runs one schedule until training is done or an invariant is violated.
SimResult RunSchedule(const SimConfig& config);

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIMULATOR_H_
