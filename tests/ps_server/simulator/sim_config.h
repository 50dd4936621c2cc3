// The parameters of one simulated schedule: the job, the faults of the network and of the machines,
// and the planted bugs. Times are in seconds of virtual time. Fields without a unit are counts or
// probabilities.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIM_CONFIG_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIM_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ps_server/simulator/core_bugs.h"

namespace pushpull::sim {

// kSyncWait waits for all replicas in each step; kSyncDrop decides a step after a deadline with at
// least `min_contributors` of them.
enum class Mode { kSyncWait, kSyncDrop, kAsync };

// The number of samples of a step.
inline constexpr uint64_t kBatchSize = 10;
// An administrator scales the job to at most this many replicas.
inline constexpr uint32_t kMaxSimReplicas = 6;

struct SimConfig {
  uint64_t seed = 0;
  Mode mode = Mode::kSyncWait;
  CoreBugs bugs;

  // Rules that the runtime, the store and the workers follow. Setting one to false plants a bug.
  // Rules of the store and the disk:
  bool restore_drops_newer = true;  // A restore removes newer versions.
  bool compare_ahead = true;        // A chunk made ahead is kept only if its inputs are unchanged.
  bool commit_when_whole = true;    // A version becomes visible when all its chunks are made.
  bool checkpoints_keep_marks = true;
  bool keep_scaled_number = true;          // If false, an administrator's number is not written.
  bool newest_checkpoint_by_epoch = true;  // If false, the checkpoint with the highest step wins.
  bool remove_pending_first = true;  // A new epoch removes what older ones have not published.
  // RunState decides whether a process that ends may remove its state files (I9). If false, the
  // process removes them when the coordinator's version equals its durable step, which is also true
  // before recovery, when both are 0.
  bool ask_run_state = true;
  // If false, a server that is refused because it has another model empties the state files.
  bool open_changes_nothing = true;

  // Rules of the workers:
  bool take_positions_from_grants = true;  // If false, a worker continues with its own position.
  // If false, a worker keeps the part of the batch that its first grant of the replica named.
  bool take_parts_from_grants = true;
  bool repeat_stale_batches = true;  // If false, a stale batch is skipped.
  bool pull_exactly = true;          // If false, the shards of a pull may have different versions.
  bool pull_again_when_gone = true;  // If false, old weights are used under the newer version.
  bool early_pull_waits = true;      // If false, an early pull may return the old version.

  // The job.
  uint32_t shards = 1;
  bool one_process = true;                       // If false, each shard has a process.
  std::vector<std::vector<int>> chunk_elements;  // [shard][chunk]
  uint32_t replicas = 1;
  uint32_t spares = 0;  // Clones beyond the number of replicas.
  uint64_t num_steps = 10;
  // The config limits training to one epoch of `num_steps` batches instead of to `num_steps` steps.
  bool ends_by_epochs = false;
  uint32_t min_contributors = 0;
  uint64_t max_staleness = 0;
  bool shares_by_speed = false;
  uint64_t checkpoint_steps = 0;
  bool measure_norms = false;
  uint32_t void_one_in = 0;  // One in this many contributions is void; 0 means none.

  // The faults. They occur only during the first `chaos_seconds`. Where no unit is given, the value
  // is a probability.
  double chaos_seconds = 10;
  double loss = 0;               // Per message.
  double duplication = 0;        // Per message.
  double corruption = 0;         // Per chunk.
  double long_delay = 0;         // Per message: it takes up to 6 s.
  double drain_rate = 0;         // Per second: the coordinator's process gets SIGTERM.
  double crash_at_action = 0;    // Per action of a server.
  double worker_crash_rate = 0;  // Per second and worker.
  double worker_pause_rate = 0;  // Per second and worker.
  double partition_rate = 0;     // Per second and process.
  double keep_mapped_state = 1;  // Per server crash: mapped state survives.
  double move_rate = 0;          // Per server crash: the server restarts on another machine.
  double early_end = 0;          // Per coordinator start: SIGTERM arrives within 0.1 s.
  double refused_start = 0;      // Per server start: a server with another model is refused first.
  // Per publication: the server freezes before it publishes a checkpoint, another server replaces
  // it on the other machine, and then the frozen server publishes after all.
  double late_publication = 0;
  double disk_failure = 0;  // Per snapshot, publication, and write of an epoch or of a number.
  double save_rate = 0;     // Per second: an administrator asks for a checkpoint.
  double evict_rate = 0;    // Per second: an administrator evicts a clone, which registers again.
  double scale_rate = 0;    // Per second: an administrator changes the number of replicas.

  bool sync() const { return mode != Mode::kAsync; }
  // The number of elements of a shard.
  int elements(uint32_t shard) const {
    int sum = 0;
    for (const int n : chunk_elements[shard]) sum += n;
    return sum;
  }
};

// Returns a random config. The same arguments give the same config.
SimConfig RandomConfig(Mode mode, uint64_t seed);

// Describes the config in one line, for failure messages.
std::string ToString(const SimConfig& config);

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIM_CONFIG_H_
