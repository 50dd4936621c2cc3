// ShardStore carries out the orders of a ShardAggregator on tensors and files.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_SHARD_STORE_H_
#define PUSHPULL_PS_SERVER_RUNTIME_SHARD_STORE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/file_system.h"
#include "common/base/stop_requested.h"
#include "common/base/thread_pool.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/optimizer/apply_pass.h"
#include "ps_server/core/shard_events.h"
#include "ps_server/runtime/job_spec.h"
#include "ps_server/runtime/version_ahead.h"
#include "ps_server/store/variable_store.h"

namespace pushpull {

// What ShardStore::Restore asks of its process.
struct RestoreHooks {
  // Polled during a restore from a checkpoint or from initial values. Restore returns CANCELLED
  // once it returns true.
  StopRequested stop_requested = NeverStopped;
  // Called before a restore changes anything, and after each success. Restore returns their errors.
  std::function<absl::Status()> may_restore = [] { return absl::OkStatus(); };
  std::function<absl::Status()> on_restored = [] { return absl::OkStatus(); };
  // Returns a checkpoint that the process has verified and keeps open, or null.
  std::function<std::shared_ptr<const Checkpoint>(const VersionId&)> opened_checkpoint =
      [](const VersionId&) { return nullptr; };
};

// One thread at a time calls Restore, Measure, Apply and ApplyAhead. The other methods are
// thread-safe. All methods but Pin, WeightsPayload and HeldVersions block, on computation or on
// the disk.
class ShardStore {
 public:
  // `job`, `files` and `pool` must outlive the store.
  ShardStore(const JobSpec* job, int shard, std::string train_dir,
             std::unique_ptr<VariableStore> variables, FileSystem* files, ThreadPool* pool,
             RestoreHooks hooks);

  // Makes order.id the newest version, from mapped state, a checkpoint or initial values.
  // Returns the serialized PushMarks that are stored with the version, which say what has been
  // pushed for each replica; empty in synchronous mode. FAILED_PRECONDITION: mapped state does not
  // hold the version of that epoch, or the checkpoint of that step was published in another epoch.
  // Also returns the errors of Checkpoint::Open and JobSpec::ReadWarmStart.
  absl::StatusOr<std::string> Restore(const shard_action::StoreRestore& order);
  // Returns the squared norms over this shard's elements that version order.step needs
  // (ApplyPass::MeasureNorms).
  absl::StatusOr<std::vector<double>> Measure(const shard_action::StoreMeasure& order);
  // Makes version order.step. Keeps the chunks that ApplyAhead made from the same
  // contributions. May wait for pulls of the version whose buffer it overwrites.
  absl::Status Apply(const shard_action::StoreApply& order);
  // Makes one chunk of version order.step before the step is decided. FAILED_PRECONDITION: it
  // would have to wait for pulls. After an error Apply makes the chunk, so the caller may
  // ignore it.
  absl::Status ApplyAhead(const shard_action::StoreApplyAhead& order);

  absl::StatusOr<PinnedVersion> Pin(uint64_t version) const { return variables_->Pin(version); }
  Payload WeightsPayload(const PinnedVersion& pinned) const {
    return variables_->WeightsPayload(pinned);
  }
  // Writes the shard's file of a checkpoint from a pinned version. The pin lasts until the
  // method returns.
  absl::StatusOr<ps::SnapshotReply> WriteSnapshot(PinnedVersion pinned, uint64_t epoch,
                                                  const std::string& marks);

  // Complete versions in memory, oldest first.
  std::vector<VersionId> HeldVersions() const;

 private:
  absl::StatusOr<std::string> RestoreVersion(const shard_action::StoreRestore& order);
  // Makes ahead_ version `step`. Chunks of this version that are already made are kept.
  // FAILED_PRECONDITION: its buffer is still being read. INTERNAL: `step` is not the store's
  // next version.
  absl::Status BeginVersion(uint64_t step);
  // Gives up the version in ahead_, if there is one.
  void DropVersion();
  // Makes the buffer of the next version writable. Blocks while pulls read the buffer; after 250 ms
  // it leaves the buffer to the pulls and gives the next version a new one. If no further buffer
  // may be left to pulls, it waits for up to 20 s (kLastPinPatience).
  absl::Status MakeWritable();
  // Reads version id.version from its checkpoint into `to` and `marks`. FAILED_PRECONDITION:
  // the checkpoint was published in another epoch.
  absl::Status FillFromCheckpoint(const VersionId& id, const StateVectors& to, std::string* marks);
  absl::Status FillFrom(const Checkpoint& checkpoint, const StateVectors& to, std::string* marks);
  // Takes the values of a warm start, or draws them if the job has none. Also returns the errors of
  // JobSpec::ReadWarmStart.
  absl::Status FillInitial(const StateVectors& to);
  // Writes elements [first, first + count) of the variable's InitialValues to `out`.
  absl::Status Draw(int64_t variable, int64_t first, int64_t count, float* out) const;

  const JobSpec* const job_;
  const int shard_;
  const std::string train_dir_;
  const std::unique_ptr<VariableStore> variables_;
  FileSystem* const files_;
  ThreadPool* const pool_;
  const RestoreHooks hooks_;
  const VariableLayout apply_layout_;
  const ApplyPass pass_;
  std::optional<VersionAhead> ahead_;  // set between BeginApply and Commit of the store
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_SHARD_STORE_H_
