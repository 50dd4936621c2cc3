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

#include <string>

#include "tests/ps_server/simulator/run_counts.h"
#include "tests/ps_server/simulator/sim_config.h"

namespace pushpull::sim {

// What happened in one run.
struct SimResult {
  std::string violation;  // The first violation of an invariant, or empty.
  RunCounts counts;
  double seconds = 0;  // Virtual time.
};

// Runs one schedule until training is done or an invariant is violated.
SimResult RunSchedule(const SimConfig& config);

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIMULATOR_H_
