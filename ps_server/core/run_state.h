// Decides what one ps_server process may do to the files that hold training state: the state files
// of its shards and the server's own files in train_dir. Every such decision is made here. RunFiles
// (ps_server/runtime/run_files.h) carries the decisions out, and nothing else renames, shortens or
// removes those files.
//
// The files of a run go through these stages in one process:
//
//     opened     The files are locked and read. Everything on disk stays as an earlier process left
//                it until the coordinator's process begins the first epoch. Before it writes EPOCH
//                it removes what may fill the disk: checkpoints that were not published, and those
//                whose deletion had begun. A protected one of these gets its name back.
//     restored   Per shard: the store holds a whole version of this run. The new state file gets
//                its final name, so that the version outlives a killed process. A file that had
//                that name and did not fit is set aside.
//     serving    All shards of the job are restored. The coordinator's process writes
//                pipeline.config and the event file, and removes the leftovers that were not
//                removed before. Steps are applied from here on.
//     ended      The state files are removed if this process's shards were restored and a verified
//                checkpoint is at least as new as everything in them. Otherwise they stay for the
//                next process.
//
// A pure state machine without threads, files or a clock. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_RUN_STATE_H_
#define PUSHPULL_PS_SERVER_CORE_RUN_STATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace pushpull {

namespace run_state_event {

// The store of shard `shard` (counted from 0 within this process) holds a whole version that the
// coordinator chose.
struct ShardRestored {
  int shard = 0;
};
// kAdoptStateFile has been carried out for that shard.
struct StateFileAdopted {
  int shard = 0;
};
// In the coordinator's process only: every shard of the job is restored. CHECKs all_restored().
struct JobRestored {};
// The process is about to end, and nothing more is applied.
struct Ending {
  // The newest version in the store of each shard of this process, or nothing if it holds none.
  std::vector<std::optional<uint64_t>> newest_versions;
  // The step of a checkpoint of this run that was published and has since been read back and
  // verified; nothing if there is none.
  std::optional<uint64_t> verified_step;
};

}  // namespace run_state_event

using RunStateEvent =
    std::variant<run_state_event::ShardRestored, run_state_event::StateFileAdopted,
                 run_state_event::JobRestored, run_state_event::Ending>;

struct RunStateAction {
  enum class Kind {
    // Give the new state file of `shard` its final name, and set aside an old one. Ordered at each
    // restore until StateFileAdopted has reported that it is done.
    kAdoptStateFile,
    // Write pipeline.config, open an event file, remove the leftovers that are still there, and
    // rename the checkpoints that --from_checkpoint abandons.
    kWriteTrainDir,
    kRemoveStateFiles,  // remove those of all shards of this process
    kKeepStateFiles,    // leave them in place; `reason` is for the log
  };
  Kind kind = Kind::kKeepStateFiles;
  int shard = 0;
  std::string reason = "";
};

class RunState {
 public:
  // num_shards is the number of shards in this process.
  explicit RunState(int num_shards) : adopted_(num_shards, false) {}

  // Returns the actions to carry out, in order; none after Ending.
  std::vector<RunStateAction> Handle(const RunStateEvent& event);

  // Returns whether every shard of this process has been restored and its state file has its final
  // name, so that the process can answer pulls.
  bool all_restored() const;

 private:
  void On(const run_state_event::ShardRestored& event);
  void On(const run_state_event::StateFileAdopted& event);
  void On(const run_state_event::JobRestored& event);
  void On(const run_state_event::Ending& event);
  // Returns why the state files must stay, or an empty string if they may be removed.
  std::string WhyKeep(const run_state_event::Ending& event) const;

  std::vector<bool> adopted_;  // per shard: StateFileAdopted has come
  bool written_ = false;       // kWriteTrainDir was ordered
  bool ended_ = false;
  std::vector<RunStateAction> actions_;  // collected while an event is handled
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_RUN_STATE_H_
