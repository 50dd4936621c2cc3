// Watches a directory for new checkpoints and opens them for evaluation.
//
// Thread rule: not thread-safe. All methods that read files block on the disk.
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

#include "common/base/file_system.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/manifest.h"
#include "common/config/training_length.h"

namespace pushpull {

class CheckpointWatcher {
 public:
  // `files` must outlive the watcher.
  CheckpointWatcher(FileSystem* files, std::string directory);

  // Lists the directory and reads the manifests of checkpoints that are new or have been replaced,
  // but no tensors. If the newest checkpoint says that training is done, also reads the directory's
  // pipeline.config. The methods below report what the last Poll found. NOT_FOUND: no such
  // directory. DATA_LOSS: its run_id file is malformed.
  //
  // Only checkpoints of the directory's own run count, which is that of its run_id file; the log
  // names the others once. Without that file, the checkpoints of all runs count.
  absl::Status Poll();

  // Returns whether there is a new checkpoint. A checkpoint is new until it has been taken or
  // refused. A checkpoint of the same step, but of another epoch or run, is another one. If the
  // server publishes a taken checkpoint again in the same epoch, to say that training is done, it
  // does not become new.
  bool has_new() const;
  // Returns whether the newest usable checkpoint is the last one of the run: it says that training
  // is done, and with the present limits in pipeline.config training still ends there. The server
  // writes pipeline.config at each start, when it has recovered, so a finished run that is
  // continued with higher limits is not done any more. Without a pipeline.config that can be read,
  // the checkpoint alone counts.
  bool final_is_there() const;
  // Returns whether final_is_there, and that checkpoint has also been taken.
  bool final_was_taken() const;
  // Returns the steps of all new checkpoints, ascending.
  std::vector<uint64_t> untaken() const;

  // What Take does about a checkpoint that cannot be read at the moment (IsReadFailure). It always
  // logs the reason and keeps the checkpoint as new.
  enum class Unreadable {
    kRetry,     // Returns null if it fails to read the checkpoint that it has chosen.
    kWait,      // Returns null if a checkpoint of a later step could not be read, here or in Poll.
    kPassOver,  // Tries the next one.
  };

  // Opens and verifies the newest new checkpoint. If it does not verify, logs and refuses it and
  // tries the next one; a refused checkpoint is new again once its files have changed, since
  // somebody may have repaired them. If it has been deleted, tries the next one. Also returns null
  // if no new checkpoint is left.
  //   first: the step of a new checkpoint that is tried before all others; nullopt: none. If it is
  //   there but cannot be read at the moment, Take returns null.
  std::unique_ptr<Checkpoint> Take(Unreadable unreadable = Unreadable::kRetry,
                                   std::optional<uint64_t> first = std::nullopt);

  // Makes a taken checkpoint new again, because what Take returned could not be read.
  void PutBack(const CheckpointManifest& manifest);

  // Returns one line for each checkpoint that could not be read since the last Poll began, with the
  // reason.
  std::vector<std::string> unreadable() const;

  // Adds a checkpoint that Take has returned, but whose weights could not be read, to unreadable().
  // Logs the reason.
  void NoteUnreadable(uint64_t step, const absl::Status& status);

  // Returns the steps of the checkpoints that do not count, because they are of another run.
  std::vector<uint64_t> of_other_runs() const;

  // Returns one line for each checkpoint that was refused, with the reason.
  std::vector<std::string> refusals() const;

  // Returns those lines of refusals() and unreadable() that are of steps after `step`.
  std::vector<std::string> UnusableAfter(uint64_t step) const;

 private:
  using Version = std::pair<uint64_t, uint64_t>;  // epoch and step; a newer version is larger

  struct Entry {
    std::optional<Version> version;  // nullopt: the manifest does not verify
    std::string run_id;
    std::string stamp;  // StampOf when the manifest was read; empty: not known
    bool training_done = false;
    uint64_t num_images = 0;  // training images, 0 if the manifest names no number
    std::string refusal;      // why the checkpoint cannot be used; empty if it can
    std::string files;        // FilesOf when the checkpoint was refused by Take
  };

  // Copies what Poll and Take have to know of a manifest.
  static void Describe(const CheckpointManifest& manifest, Entry* entry);
  bool IsTaken(const Entry& entry) const;
  // Returns whether the entry is known to be of another run than that of the directory.
  bool IsOfOtherRun(const Entry& entry) const;
  // Returns whether the checkpoint is of the directory's run and has not been refused.
  bool IsUsable(const Entry& entry) const;
  // Logs which checkpoints are of another run, unless it has been said of all of them.
  void ReportOtherRuns();
  // Returns a text that changes when the checkpoint is replaced, which always gives it another
  // folder. It costs two system calls and reads no file. An empty text: it is not known now.
  std::string StampOf(uint64_t step) const;
  // Returns names, sizes and modification times of the checkpoint's files.
  std::string FilesOf(uint64_t step) const;
  // Sets limits_ from pipeline.config. If the file cannot be read, the earlier limits stay.
  void ReadLimits();
  // Returns null if no checkpoint is usable.
  const Entry* Newest() const;

  FileSystem* files_;
  std::string directory_;
  std::optional<std::string> run_id_;                // of the directory; nullopt: it has no run_id
  std::map<uint64_t, Entry> entries_;                // the checkpoints in the directory, by step
  std::vector<uint64_t> reported_;                   // steps that ReportOtherRuns has named
  std::set<std::pair<std::string, Version>> taken_;  // with the run's id
  std::optional<TrainingLimits> limits_;             // nullopt: not known
  std::map<uint64_t, std::string> unreadable_;       // the lines of unreadable(), by step
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_CHECKPOINT_WATCHER_H_
