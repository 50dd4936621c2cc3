// Decides what one ps_server process may do to the files that hold training state: its shards'
// state files and the server's own files in train_dir. It is the only place that decides so;
// RunFiles (ps_server/service/run_files.h) carries the decisions out, and nothing else renames,
// shortens or removes those files.
//
// The life of a run's files in one process:
//
//     opened     locked and read; everything on disk stays as an earlier process left it
//     restored   per shard: the store holds a whole version of this run. Its state file gets its
//                name, so that the version outlives a killed process; a file that stood there and
//                did not fit is set aside.
//     serving    all shards are restored: pipeline.config and the event file are written, leftovers
//                of a killed server are removed. Steps are applied from here on.
//     ended      the state files are removed if this process has served and a verified checkpoint
//                is at least as new as everything in them; else they stay for the next process.
//
// A pure state machine: no threads, files or clocks. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_RUN_STATE_H_
#define PUSHPULL_PS_SERVER_CORE_RUN_STATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace pushpull {

namespace run_state_event {

// The store of shard `shard` of this process (counted from 0 within the process) holds a whole
// version that the coordinator chose.
struct ShardRestored {
  int shard = 0;
};
// Coordinator's process only: every shard of the job is restored.
struct JobRestored {};
// The process is about to end. Nothing is applied any more.
struct Ending {
  // Newest version in the store of each shard of this process; nothing where none is held.
  std::vector<std::optional<uint64_t>> newest_versions;
  // Step of a checkpoint of this run that was published and has been read back and verified since;
  // nothing: there is none, or it does not verify.
  std::optional<uint64_t> verified_step;
};

}  // namespace run_state_event

using RunStateEvent = std::variant<run_state_event::ShardRestored, run_state_event::JobRestored,
                                   run_state_event::Ending>;

struct RunStateAction {
  enum class Kind {
    kAdoptStateFile,  // give the new state file of `shard` its name; set aside what has it
    // Write pipeline.config, open an event file, remove a killed server's leftovers, and rename the
    // checkpoints that --from_checkpoint gives up.
    kWriteTrainDir,
    kRemoveStateFiles,  // of all shards of this process
    kKeepStateFiles,    // leave them; `reason` is for the log
  };
  Kind kind = Kind::kKeepStateFiles;
  int shard = 0;
  std::string reason = "";
};

class RunState {
 public:
  // num_shards: of this process.
  explicit RunState(int num_shards) : restored_(num_shards, false) {}

  // Nothing follows from an event after Ending.
  std::vector<RunStateAction> Handle(const RunStateEvent& event);

  // Every shard of this process has been restored, so it can answer pulls.
  bool all_restored() const;

 private:
  void On(const run_state_event::ShardRestored& event);
  void On(const run_state_event::JobRestored& event);
  void On(const run_state_event::Ending& event);
  // Why the files have to stay; empty when they may go.
  std::string WhyKeep(const run_state_event::Ending& event) const;

  std::vector<bool> restored_;
  bool written_ = false;  // WriteTrainDir was ordered
  bool ended_ = false;
  std::vector<RunStateAction> actions_;  // of the event being handled
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_RUN_STATE_H_
