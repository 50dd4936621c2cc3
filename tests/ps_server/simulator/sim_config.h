// One random schedule: the job, how bad network and machines are, and which bugs are planted.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIM_CONFIG_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIM_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ps_server/simulator/core_bugs.h"

namespace pushpull::sim {

enum class Mode { kSyncWait, kSyncDrop, kAsync };

struct SimConfig {
  uint64_t seed = 0;
  Mode mode = Mode::kSyncWait;
  CoreBugs bugs;

  // What the runtime, the store and the workers have to do right beside the state machines; the
  // opposite of each is a seeded bug. Of the store and the disk:
  bool restore_drops_newer = true;  // a restore leaves no newer version
  bool compare_ahead = true;        // a chunk made ahead counts only for what it was made from
  bool commit_when_whole = true;    // a version shows when all its chunks are made
  bool checkpoints_keep_marks = true;
  bool newest_checkpoint_by_epoch = true;  // false: by step alone
  // What may happen to state files is RunState's to decide (I9). False: a process that ends removes
  // them where the durable step and the version that the coordinator tells are equal, as 0 and 0
  // are before it has recovered.
  bool ask_run_state = true;
  // False: a server of another model, which is refused, has emptied the state files before.
  bool open_changes_nothing = true;

  // Rules of the workers:
  bool take_positions_from_grants = true;  // false: go on with the own count, whatever is granted
  bool repeat_stale_batches = true;        // false: go on with the next one
  bool pull_exactly = true;                // false: shards of several versions make one pull
  bool pull_again_when_gone = true;        // false: only the version's number is taken over
  bool early_pull_waits = true;            // false: what is there at once is taken for the version

  // The job.
  uint32_t shards = 1;
  bool one_process = true;                       // all shards in the coordinator's process
  std::vector<std::vector<int>> chunk_elements;  // [shard][chunk]
  uint32_t replicas = 1;
  uint32_t spares = 0;
  uint64_t num_steps = 10;
  uint32_t min_contributors = 0;
  uint64_t max_staleness = 0;
  uint64_t checkpoint_steps = 0;
  bool measure_norms = false;
  uint32_t void_one_in = 0;  // so many contributions hold one void; 0: none

  // The world, for the first `chaos_seconds`; afterwards it is well-behaved.
  double chaos_seconds = 10;
  double loss = 0;               // of a message
  double duplication = 0;        // of a message
  double corruption = 0;         // of a chunk
  double long_delay = 0;         // share of messages that take seconds
  double drain_rate = 0;         // per second: SIGTERM of the coordinator's process
  double crash_at_action = 0;    // of a server, at each action
  double worker_crash_rate = 0;  // per second and worker
  double worker_pause_rate = 0;  // per second and worker
  double partition_rate = 0;     // per second and process
  double keep_mapped_state = 1;  // probability at a server's crash
  double move_rate = 0;         // probability at a server's crash that it starts on another machine
  double early_end = 0;         // probability at a start that SIGTERM comes within 0.1 s
  double refused_start = 0;     // probability that a server of another model is tried before
  double late_publication = 0;  // probability that a server is frozen before it publishes, that
                                // another one takes its place elsewhere, and that it goes on then
  double disk_failure = 0;      // of a snapshot or a publication
  double save_rate = 0;         // per second: an operator wants a checkpoint now
  double evict_rate = 0;        // per second: an operator evicts a clone, which tries to come back

  bool sync() const { return mode != Mode::kAsync; }
  int elements(uint32_t shard) const {
    int sum = 0;
    for (const int n : chunk_elements[shard]) sum += n;
    return sum;
  }
};

// A pure function of its arguments.
SimConfig RandomConfig(Mode mode, uint64_t seed);

// For messages.
std::string ToString(const SimConfig& config);

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIM_CONFIG_H_
