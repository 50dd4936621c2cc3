// Keeps track of which checkpoints of a directory are new. Not thread-safe.
#ifndef PUSHPULL_WORKER_EVAL_CHECKPOINT_WATCHER_H_
#define PUSHPULL_WORKER_EVAL_CHECKPOINT_WATCHER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "common/checkpoint/checkpoint_reader.h"
#include "common/file_system.h"

namespace pushpull {

class CheckpointWatcher {
 public:
  // `files` must outlive the watcher.
  CheckpointWatcher(FileSystem* files, std::string directory);

  // Looks at the directory, reading manifests only. NOT_FOUND: there is no such directory.
  absl::Status Poll();

  // As of the last Poll. A checkpoint is new until it was taken or refused; one that the server
  // published again for the same step (to say that training is done) is not new.
  bool has_new() const;
  // The newest manifest says that training is done.
  bool final_is_there() const;
  // ... and that checkpoint has been taken.
  bool final_was_taken() const;
  // Steps that are there and were never taken, ascending.
  std::vector<uint64_t> untaken() const;

  // Opens and verifies the newest new checkpoint. One that does not verify is logged, remembered as
  // refused, and the next is tried; one that is deleted meanwhile is passed over. One that cannot
  // be read now (IsReadFailure) is logged and stays new. Null when there is none, or the newest
  // cannot be read.
  std::unique_ptr<Checkpoint> Take();

  // Which checkpoint could not be read since the last Poll began, and why; empty: none.
  const std::string& unreadable() const { return unreadable_; }

  // Why the checkpoints that are there cannot be used, one line each.
  std::vector<std::string> refusals() const;

 private:
  using Version = std::pair<uint64_t, uint64_t>;  // epoch, step: newer is larger

  struct Entry {
    std::optional<Version> version;  // nothing: the manifest does not verify
    bool training_done = false;
    std::string refusal;
  };

  void NoteUnreadable(uint64_t step, const absl::Status& status);
  // Nothing when there is none with a manifest that verifies.
  const Entry* Newest() const;

  FileSystem* files_;
  std::string directory_;
  std::map<uint64_t, Entry> entries_;  // by step, as in the directory
  std::set<Version> taken_;
  std::string unreadable_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_CHECKPOINT_WATCHER_H_
