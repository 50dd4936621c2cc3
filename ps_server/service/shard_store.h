// The store's side of one shard: carries out the aggregator's orders on tensors and files.
#ifndef PUSHPULL_PS_SERVER_SERVICE_SHARD_STORE_H_
#define PUSHPULL_PS_SERVER_SERVICE_SHARD_STORE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/file_system.h"
#include "common/thread_pool.h"
#include "ps_server/core/shard_events.h"
#include "ps_server/service/job_spec.h"
#include "ps_server/service/version_ahead.h"
#include "ps_server/store/apply_pass.h"
#include "ps_server/store/variable_store.h"

namespace pushpull {

// Restore, Measure, Apply and ApplyAhead from one thread at a time; Pin and WriteSnapshot from any.
// Blocking.
class ShardStore {
 public:
  // job, files and pool must outlive the store. on_restored: after each successful Restore, by its
  // thread; an error becomes Restore's.
  ShardStore(const JobSpec* job, int shard, std::string train_dir,
             std::unique_ptr<VariableStore> variables, FileSystem* files, ThreadPool* pool,
             std::function<absl::Status()> on_restored);

  // Returns the marks stored with the version. FAILED_PRECONDITION: that number is held, or a
  // checkpoint of it is there, from another epoch only.
  absl::StatusOr<std::string> Restore(const shard_action::StoreRestore& order);
  absl::StatusOr<std::vector<double>> Measure(const shard_action::StoreMeasure& order);
  absl::Status Apply(const shard_action::StoreApply& order);
  // Does nothing if it would have to wait for readers. What it does not do, or cannot, Apply does.
  absl::Status ApplyAhead(const shard_action::StoreApplyAhead& order);

  absl::StatusOr<PinnedVersion> Pin(uint64_t version) const { return variables_->Pin(version); }
  Payload WeightsPayload(const PinnedVersion& pinned) const {
    return variables_->WeightsPayload(pinned);
  }
  // Writes the shard's file of a checkpoint from a pinned version. on_captured is called when the
  // pinned bytes are not needed any more.
  absl::StatusOr<ps::SnapshotReply> WriteSnapshot(PinnedVersion pinned, uint64_t epoch,
                                                  const std::string& marks);

  // Whole versions in memory, oldest first.
  std::vector<VersionId> HeldVersions() const;

 private:
  absl::StatusOr<std::string> RestoreVersion(const shard_action::StoreRestore& order);
  // Afterwards ahead_ is version `step`, whatever has been made of it. FAILED_PRECONDITION: its
  // buffer is still read. INTERNAL: the store does not make that version next.
  absl::Status BeginVersion(uint64_t step);
  void DropVersion();
  // The next write finds its buffer free; blocks for a moment while pulls read there.
  absl::Status MakeWritable();
  // FAILED_PRECONDITION: the checkpoint of that step was published in another epoch.
  absl::Status FillFromCheckpoint(const VersionId& id, const StateVectors& to, std::string* marks);
  void FillInitial(const StateVectors& to);

  const JobSpec* const job_;
  const int shard_;
  const std::string train_dir_;
  const std::unique_ptr<VariableStore> variables_;
  FileSystem* const files_;
  ThreadPool* const pool_;
  const std::function<absl::Status()> on_restored_;
  const ApplyPass pass_;
  std::optional<VersionAhead> ahead_;  // between the store's BeginApply and its Commit
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_SHARD_STORE_H_
