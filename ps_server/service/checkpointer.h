// The coordinator's checkpoints: finding the one to go on from, publishing and thinning out.
#ifndef PUSHPULL_PS_SERVER_SERVICE_CHECKPOINTER_H_
#define PUSHPULL_PS_SERVER_SERVICE_CHECKPOINTER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/checkpoint/checkpoint_reader.h"
#include "common/file_system.h"
#include "ps_server/core/coordinator_events.h"
#include "ps_server/service/job_spec.h"

namespace pushpull {

// Blocks on the disk; used by one thread at a time.
class Checkpointer {
 public:
  // job and files must outlive it. run_id: 32 hex digits. from_step: the checkpoint to find until
  // one is published, although there may be newer ones; nothing: the newest.
  Checkpointer(const JobSpec* job, FileSystem* files, std::string train_dir, std::string run_id,
               std::optional<uint64_t> from_step);

  // The newest checkpoint that verifies: its step, and the epoch in which it was published. Nothing
  // when there never was one; an error when there are some and none can be used.
  absl::StatusOr<std::optional<VersionId>> FindCheckpoint();
  // Reads the checkpoint of that step back. OK: it is whole and of this run.
  absl::Status Verify(uint64_t step);
  // Writes the manifest over the shards' files, publishes, then applies retention (whose failure is
  // only logged). ABORTED: another server has taken the train_dir over.
  absl::Status Publish(const coordinator_action::PublishCheckpoint& order, uint64_t num_slots);
  void Abandon(uint64_t epoch, uint64_t step);

 private:
  // FAILED_PRECONDITION: of another run or model.
  absl::Status CheckFits(const Checkpoint& checkpoint) const;

  const JobSpec* const job_;
  FileSystem* const files_;
  const std::string train_dir_;
  const std::string run_id_;
  std::optional<uint64_t> from_step_;
  std::optional<double> run_started_unix_;  // of the first checkpoint of the run
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_CHECKPOINTER_H_
