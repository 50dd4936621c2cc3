// Holds up to two whole versions of a shard's variables (weights, slots, EMA) in one memory-mapped
// file, so that they outlive a killed process. Version t overwrites the buffer of version t - 2.
// One atomic word of the file says which buffers hold whole versions, so a half-written version is
// never visible, neither to readers nor after SIGKILL. state_file.h describes the file.
//
// Thread rule: any thread may call Pin, WeightsPayload and the accessors. Only one
// thread at a time, the apply thread, may call the methods that write: WaitUntilWritable,
// DetachReaders, MakeWritable, BeginApply, BeginFill, Commit, Abandon and UseVersion. Calls of
// AdoptFile and RemoveFile must not overlap. A pin keeps the memory and the file's lock alive by
// itself and may outlive the store.
#ifndef PUSHPULL_PS_SERVER_STORE_VARIABLE_STORE_H_
#define PUSHPULL_PS_SERVER_STORE_VARIABLE_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/base/payload.h"
#include "common/model/sharding.h"
#include "common/model/variable_layout.h"
#include "common/optimizer/optimizer.h"
#include "common/optimizer/state_vectors.h"
#include "ps_server/store/state_file.h"

namespace pushpull {

struct VariableStoreOptions {
  std::string state_dir;  // made if absent; empty: anonymous memory, which dies with the process
  std::string name;       // of the file in state_dir
  StateOwner owner;
  int64_t max_metadata_bytes = 65536;  // capacity for the metadata of one version
};

// Describes a whole version in the store.
struct HeldVersion {
  uint64_t version = 0;
  uint64_t epoch = 0;    // as given to Commit (VersionId::epoch)
  std::string metadata;  // as given to Commit: the marks of the asynchronous mode
};

// A version that does not change while a copy of `owner` exists.
struct PinnedVersion {
  uint64_t version = 0;
  uint64_t epoch = 0;
  std::string metadata;
  ConstStateVectors vectors;
  std::shared_ptr<const void> owner;
};

class VariableStore {
 public:
  // Maps the file that an earlier process left, or makes a new one. A file is not used, and not
  // touched, if it belongs to another run, train_dir, model, sharding or optimizer, is damaged, or
  // is from before the machine last started; the reason is logged and returned by fresh_reason().
  // If no new file can be made (no room, no such folder), uses anonymous memory and logs a warning.
  // Returns the errors of StateMapping::Open. `layout` and `optimizer` are read only during the
  // call.
  static absl::StatusOr<std::unique_ptr<VariableStore>> Open(const VariableStoreOptions& options,
                                                             const VariableLayout& layout,
                                                             const OptimizerSpec& optimizer);
  ~VariableStore();
  VariableStore(const VariableStore&) = delete;
  VariableStore& operator=(const VariableStore&) = delete;

  // Returns the whole versions, oldest first: none, one, or two consecutive ones.
  std::vector<HeldVersion> held() const;
  // Returns the version from which pulls and the next apply start; nothing if none is held.
  std::optional<uint64_t> newest() const;
  // Returns the shard's range in the flat vector.
  ElementRange range() const;
  // Returns why no earlier state was taken over; empty if it was.
  const std::string& fresh_reason() const;
  // Returns whether the state is in a file, not in anonymous memory.
  bool is_file() const;
  // Returns the path of the file, and the newest version of a file that is there but does not fit
  // although it is of this run: the settings have changed. AdoptFile sets such a file aside.
  const std::string& path() const;
  std::optional<uint64_t> unfit_version() const;

  // Pins a version. FAILED_PRECONDITION with ErrorDetail VERSION_GONE: the version is not held
  // whole; the detail's step is the newest version, 0 if there is none.
  absl::StatusOr<PinnedVersion> Pin(uint64_t version) const;
  // Returns the weights of the whole shard for a pull. The payload shares the pin.
  Payload WeightsPayload(const PinnedVersion& pinned) const;

  // Blocks until no pin holds the buffer that the next Begin overwrites. Between calls of the apply
  // thread, only a Pin of the older version can take it again. DEADLINE_EXCEEDED: the timeout has
  // passed; names the version and the number of its pins.
  absl::Status WaitUntilWritable(absl::Duration timeout);

  // Makes the next Begin's buffer writable although readers that may never end have it pinned. They
  // keep what they have pinned, in memory of their own, and the next Begin uses fresh memory. From
  // then on only the newest version is held.
  //   RESOURCE_EXHAUSTED: no memory, or four buffers are still left to earlier readers
  absl::Status DetachReaders();

  // Makes the next Begin's buffer writable. Waits up to `patience` for its readers, then leaves the
  // buffer to them as DetachReaders does, so that a stuck reader delays the others no longer than
  // that. If DetachReaders fails with RESOURCE_EXHAUSTED, waits and tries again until
  // `last_patience` has passed in all, and then returns that error.
  absl::Status MakeWritable(absl::Duration patience, absl::Duration last_patience);

  // The version that BeginApply starts, and the vectors to read and to write.
  struct ApplyBuffers {
    uint64_t version = 0;
    ConstStateVectors from;
    StateVectors to;
  };
  // Starts version newest() + 1. From here on only the newest version is held. The caller must
  // write every element, as the apply pass does: zero to the padding, and nothing to the slots of
  // moving statistics, which are always zero. No version may be begun already.
  //   FAILED_PRECONDITION: no version is held, or the buffer to write is pinned
  absl::StatusOr<ApplyBuffers> BeginApply();

  // Starts a version that does not follow from the newest one: initial values or a checkpoint. The
  // newest version stays until Commit, which drops it. Elements of the result that belong to no
  // variable are zero already and must not be written. No version may be begun already.
  //   FAILED_PRECONDITION: the buffer to write is pinned
  absl::StatusOr<StateVectors> BeginFill(uint64_t version);

  // Makes the version that was begun visible with one atomic store. It then survives the process,
  // but not a crash of the machine.
  //   RESOURCE_EXHAUSTED: the metadata does not fit (max_metadata_bytes always do); the version is
  //     abandoned
  absl::Status Commit(uint64_t epoch, absl::string_view metadata);
  // Gives up the version that was begun. The newest version stays.
  void Abandon();

  // Makes a held version the newest, for recovery, and drops a newer one. FAILED_PRECONDITION: the
  // version is not held.
  absl::Status UseVersion(uint64_t version);

  // Gives a file made by Open its final name, so that the next process finds it. Without this call
  // the file is removed with the store (StateMapping::AdoptFile). RunState decides when to call it.
  absl::Status AdoptFile();
  // Removes the file from state_dir because the run is over. The store itself keeps working. OK if
  // there is no file. RunState decides when to call it.
  absl::Status RemoveFile();

 private:
  struct Mapping;
  explicit VariableStore(std::shared_ptr<Mapping> mapping);

  std::shared_ptr<Mapping> mapping_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_STORE_VARIABLE_STORE_H_
