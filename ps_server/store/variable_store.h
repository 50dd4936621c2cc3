// Two whole versions of a shard's variables (weights, slots, EMA) in one memory-mapped file, so
// that they outlive a killed process. The buffer of version t-2 becomes version t; which buffers
// hold whole versions is one atomic word of the file, so a half-written version is never visible,
// neither to readers nor after SIGKILL. The file's format: state_file.h.
//
// Thread rule: Pin, held, newest and IsWritable from any thread; everything that writes
// (WaitUntilWritable, DetachReaders, MakeWritable, Begin*, Commit*, Abandon, UseVersion) from one
// thread at a time, the apply thread. A pin keeps the memory (and the file's lock) by itself; it
// may outlive the store.
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

#include "common/payload.h"
#include "common/sharding.h"
#include "common/variable_layout.h"
#include "ps_server/store/optimizer.h"
#include "ps_server/store/state_file.h"
#include "ps_server/store/state_vectors.h"

namespace pushpull {

struct VariableStoreOptions {
  std::string state_dir;  // made if absent; empty: anonymous memory, nothing survives
  std::string name;       // of the file in state_dir
  StateOwner owner;
  int64_t max_metadata_bytes = 65536;  // of the blob stored with each version
};

// A whole version in the store.
struct HeldVersion {
  uint64_t version = 0;
  uint64_t epoch = 0;    // in which it was written
  std::string metadata;  // as given to Commit: the asynchronous mode's high-water marks
};

// A version that stays as it is while a copy of `owner` lives.
struct PinnedVersion {
  uint64_t version = 0;
  uint64_t epoch = 0;
  std::string metadata;
  ConstStateVectors vectors;
  std::shared_ptr<const void> owner;
};

class VariableStore {
 public:
  // Maps the file that an earlier process left, or makes a new one. A file of another run,
  // train_dir, model, sharding or optimizer, a damaged one, or one from before the machine last
  // started is not used and not touched; why is logged and told by fresh_reason(). Where a new file
  // cannot be made (no room, no such folder): anonymous memory and a warning. Errors of
  // StateMapping::Open. The layout and the optimizer are only read during the call.
  static absl::StatusOr<std::unique_ptr<VariableStore>> Open(const VariableStoreOptions& options,
                                                             const VariableLayout& layout,
                                                             const OptimizerSpec& optimizer);
  ~VariableStore();
  VariableStore(const VariableStore&) = delete;
  VariableStore& operator=(const VariableStore&) = delete;

  // Whole versions, oldest first: none, one or two (then consecutive unless the latest was
  // restored).
  std::vector<HeldVersion> held() const;
  // The version that pulls and the next apply start from; nothing when none is held.
  std::optional<uint64_t> newest() const;
  // Elements of the shard.
  ElementRange range() const;
  // False: anonymous memory.
  bool survives_process() const;
  // Why no earlier state was taken over; empty when it was.
  const std::string& fresh_reason() const;

  // FAILED_PRECONDITION with ErrorDetail VERSION_GONE (step: the newest, 0 when there is none): not
  // held whole.
  absl::StatusOr<PinnedVersion> Pin(uint64_t version) const;
  // The same for the newest; NOT_READY when there is none.
  absl::StatusOr<PinnedVersion> PinNewest() const;
  // The pinned weights, the whole shard, for a pull; shares the pin.
  Payload WeightsPayload(const PinnedVersion& pinned) const;

  // Whether nobody has the buffer pinned that the next Begin writes to. Only a Pin of an older
  // version than the newest can turn true into false.
  bool IsWritable() const;
  // Blocks until IsWritable or the timeout has passed: DEADLINE_EXCEEDED naming the version and its
  // pins.
  absl::Status WaitUntilWritable(absl::Duration timeout);

  // For readers that do not end: what IsWritable waits for is left to them. They keep what they
  // have pinned, in a copy, and the next Begin has a buffer of its own; only the newest version is
  // held then. RESOURCE_EXHAUSTED: no memory, or four buffers have been left so already.
  absl::Status DetachReaders();

  // Makes the next Begin's buffer writable. Blocks while readers have it; after `patience` it is
  // left to them, as DetachReaders does, so that a reader that has stopped costs the others no more
  // than that. Where no memory can be left any more, the wait goes on, for `last_patience` in all:
  // then DetachReaders' error.
  absl::Status MakeWritable(absl::Duration patience, absl::Duration last_patience);

  // Starts version newest() + 1: the vectors to read and those to write. From here on only the
  // newest version is held. FAILED_PRECONDITION: nothing is held, or the buffer is pinned. Every
  // element has to be written (the apply pass does), padding with zero.
  struct ApplyBuffers {
    uint64_t version = 0;
    ConstStateVectors from;
    StateVectors to;
  };
  absl::StatusOr<ApplyBuffers> BeginApply();

  // Starts a version that does not follow from the newest one: initial values or a checkpoint. The
  // newest version stays until Commit, which drops it. Elements of the result that are not part of
  // a variable are zero already: leave them alone. FAILED_PRECONDITION: the buffer is pinned.
  absl::StatusOr<StateVectors> BeginFill(uint64_t version);

  // Makes the version begun visible, by one atomic store. Not durable against a crash of the
  // machine. RESOURCE_EXHAUSTED: metadata is larger than max_metadata_bytes; the version is
  // abandoned.
  absl::Status Commit(uint64_t epoch, absl::string_view metadata);
  // Gives up the version begun; what was held before stays.
  void Abandon();

  // Recovery: goes on from a held version and drops a newer one. FAILED_PRECONDITION: not held.
  absl::Status UseVersion(uint64_t version);

  // Gives a file made by Open its name, so that the next process finds it; until then it vanishes
  // with the store (StateMapping::AdoptFile). RunState decides when.
  absl::Status AdoptFile();
  // Removes the file from state_dir (the run is over); the store itself works on. OK when there is
  // none. RunState decides when.
  absl::Status RemoveFile();

 private:
  struct Mapping;
  explicit VariableStore(std::shared_ptr<Mapping> mapping);

  std::shared_ptr<Mapping> mapping_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_STORE_VARIABLE_STORE_H_
