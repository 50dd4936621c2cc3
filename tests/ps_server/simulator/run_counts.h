// What is counted in the runs of the simulator.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_RUN_COUNTS_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_RUN_COUNTS_H_

#include <cstdint>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace pushpull::sim {

struct RunCounts {
  uint64_t events = 0;
  uint64_t messages = 0;
  uint64_t crashes = 0;
  uint64_t rollbacks = 0;
  uint64_t saves = 0;  // Checkpoints that an administrator requested and got.
  uint64_t evictions = 0;
  uint64_t scales = 0;       // Changes of the number of replicas that were acknowledged.
  uint64_t divisions = 0;    // Steps that were divided otherwise than the step before.
  uint64_t moves = 0;        // Restarts of a server on the other machine.
  uint64_t removals = 0;     // State files removed by a process that ended.
  uint64_t early_pulls = 0;  // Early pulls that returned a version.
  uint64_t chunks_kept = 0;  // Chunks made ahead that became part of a version.

  bool operator==(const RunCounts&) const = default;
};

struct RunCountRow {
  uint64_t RunCounts::*count;
  const char* name;
};
inline constexpr RunCountRow kRunCounts[] = {
    {&RunCounts::events, "events"},
    {&RunCounts::messages, "messages"},
    {&RunCounts::crashes, "server crashes"},
    {&RunCounts::rollbacks, "rollbacks"},
    {&RunCounts::saves, "checkpoints requested by an administrator"},
    {&RunCounts::evictions, "evictions"},
    {&RunCounts::scales, "changes of the number of replicas"},
    {&RunCounts::divisions, "steps divided anew"},
    {&RunCounts::moves, "moves to another machine"},
    {&RunCounts::removals, "state files removed"},
    {&RunCounts::early_pulls, "early pulls"},
    {&RunCounts::chunks_kept, "chunks applied ahead"},
};
static_assert(sizeof(RunCounts) == std::size(kRunCounts) * sizeof(uint64_t),
              "each count needs a row");

inline RunCounts& operator+=(RunCounts& sum, const RunCounts& more) {
  for (const RunCountRow& row : kRunCounts) sum.*row.count += more.*row.count;
  return sum;
}

// "12 events, 3 messages, ..."
inline std::string ToString(const RunCounts& counts) {
  std::string text;
  for (const RunCountRow& row : kRunCounts) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", counts.*row.count, " ", row.name);
  }
  return text;
}

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_RUN_COUNTS_H_
