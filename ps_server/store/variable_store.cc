#include "ps_server/store/variable_store.h"

#include <atomic>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "glog/logging.h"

#include "common/base/monotonic_wait.h"
#include "common/base/status_macros.h"
#include "common/wire/error_detail.h"
#include "ps_server/store/state_mapping.h"

namespace pushpull {

namespace {

// Bounds the memory. Stuck readers of more buffers than this are not a coincidence.
constexpr int kMaxDetached = 4;

}  // namespace

// The state shared by the store and all pins.
struct VariableStore::Mapping {
  // The pins of a buffer. `detached` is set once they no longer share memory with the store.
  struct Readers {
    int pins = 0;
    bool detached = false;
  };
  struct Buffer {
    HeldVersion held;  // meaningless unless the buffer is whole
    char* base = nullptr;
    std::shared_ptr<Readers> readers = std::make_shared<Readers>();
  };

  StateHeader header;
  std::unique_ptr<StateMapping> memory;

  mutable absl::Mutex mutex;
  MonotonicCondVar unpinned;  // notified when a buffer has lost its last reader
  HeldWord word ABSL_GUARDED_BY(mutex);
  Buffer buffers[2] ABSL_GUARDED_BY(mutex);
  // The version being written, between Begin and Commit, and whether BeginFill started it.
  std::optional<uint64_t> writing ABSL_GUARDED_BY(mutex);
  bool is_fill ABSL_GUARDED_BY(mutex) = false;

  // The only change that readers see. The release store publishes everything stored before it.
  void StoreWord() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::atomic_ref<uint64_t>(memory->control()->held)
        .store(word.Encode(), std::memory_order_release);
  }
  bool HoldsAny() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return word.whole[0] || word.whole[1];
  }
  // Returns the buffer to which the next version is written.
  int Target() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return HoldsAny() ? 1 - word.newest : 0;
  }
  std::optional<int> Find(uint64_t version) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (int b = 0; b < 2; ++b) {
      if (word.whole[b] && buffers[b].held.version == version) return b;
    }
    return std::nullopt;
  }
  StateVectors Vectors(int buffer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    char* const base = buffers[buffer].base;
    const auto vector = [&](int i) {
      return reinterpret_cast<float*>(base + i * header.vector_stride_bytes);
    };
    StateVectors vectors;
    vectors.weights = vector(0);
    for (int slot = 0; slot < num_slots; ++slot) vectors.slots[slot] = vector(1 + slot);
    if (has_ema) vectors.ema = vector(1 + num_slots);
    return vectors;
  }
  int64_t Version(int buffer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return buffers[buffer].held.version;
  }
  absl::Status CheckWritable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const int target = Target();
    const int pins = buffers[target].readers->pins;
    if (pins == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("the buffer of version ", Version(target), " still has ", pins, " readers"));
  }
  absl::Status DetachReaders() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void TakeOver();

  int num_slots = 0;
  bool has_ema = false;
  int detached ABSL_GUARDED_BY(mutex) = 0;  // buffers that exist only for their readers
};

absl::Status VariableStore::Mapping::DetachReaders() {
  const int target = Target();
  Buffer& buffer = buffers[target];
  if (buffer.readers->pins == 0) return absl::OkStatus();
  if (detached >= kMaxDetached) {
    return absl::ResourceExhaustedError(
        absl::StrCat(CheckWritable().message(), ", and ", detached,
                     " buffers have been left to earlier readers that have not ended"));
  }
  PP_ASSIGN_OR_RETURN(char* const base, memory->Detach(buffer.base, VectorOffset(header, target, 0),
                                                       BufferBytes(header)));
  buffer.base = base;
  buffer.readers->detached = true;
  buffer.readers = std::make_shared<Readers>();
  unpinned.NotifyAll();
  ++detached;
  // No new pin may share memory with the detached readers.
  word.whole[target] = false;
  StoreWord();
  return absl::OkStatus();
}

// Reads which versions an earlier process left.
void VariableStore::Mapping::TakeOver() {
  absl::MutexLock lock(&mutex);
  const uint64_t stored =
      std::atomic_ref<uint64_t>(memory->control()->held).load(std::memory_order_acquire);
  if (!HeldWord::Decode(stored, &word)) {
    LOG(WARNING) << "state file " << memory->path() << " holds no version: its control word "
                 << absl::StrCat(absl::Hex(stored)) << " is damaged";
    word = HeldWord();
  }
  for (int b = 0; b < 2; ++b) {
    if (!word.whole[b]) continue;
    HeldVersion& held = buffers[b].held;
    if (!ReadVersionRecord(header, memory->data() + RecordOffset(header, b), &held.version,
                           &held.epoch, &held.metadata)) {
      LOG(WARNING) << "state file " << memory->path() << ": the record of buffer " << b
                   << " is damaged, its version is not used";
      word.whole[b] = false;
    }
  }
  if (HoldsAny() && !word.whole[word.newest]) word.newest = 1 - word.newest;
  // The word in the file stays as it is until a version is written: nothing on disk may change
  // before recovery has succeeded.
}

VariableStore::VariableStore(std::shared_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}
VariableStore::~VariableStore() = default;

absl::StatusOr<std::unique_ptr<VariableStore>> VariableStore::Open(
    const VariableStoreOptions& options, const VariableLayout& layout,
    const OptimizerSpec& optimizer) {
  CHECK_EQ(options.owner.run_id.size(), sizeof(StateHeader::run_id));
  auto mapping = std::make_shared<Mapping>();
  mapping->num_slots = optimizer.num_slots();
  mapping->has_ema = optimizer.has_ema;
  mapping->header = MakeStateHeader(
      options.owner,
      Sharding(layout.total_elements(), options.owner.tasks).shard(options.owner.shard),
      options.max_metadata_bytes, layout, optimizer);
  PP_ASSIGN_OR_RETURN(mapping->memory,
                      StateMapping::Open(options.state_dir, options.name, mapping->header));
  {
    absl::MutexLock lock(&mapping->mutex);
    for (int b = 0; b < 2; ++b) {
      mapping->buffers[b].base = mapping->memory->data() + VectorOffset(mapping->header, b, 0);
    }
  }
  mapping->TakeOver();
  return std::unique_ptr<VariableStore>(new VariableStore(std::move(mapping)));
}

std::vector<HeldVersion> VariableStore::held() const {
  absl::MutexLock lock(&mapping_->mutex);
  std::vector<HeldVersion> result;
  for (const int b : {1 - mapping_->word.newest, mapping_->word.newest}) {
    if (mapping_->word.whole[b]) result.push_back(mapping_->buffers[b].held);
  }
  return result;
}

std::optional<uint64_t> VariableStore::newest() const {
  absl::MutexLock lock(&mapping_->mutex);
  if (!mapping_->HoldsAny()) return std::nullopt;
  return mapping_->Version(mapping_->word.newest);
}

ElementRange VariableStore::range() const {
  return {mapping_->header.range_begin, mapping_->header.range_end};
}

const std::string& VariableStore::fresh_reason() const { return mapping_->memory->fresh_reason(); }

bool VariableStore::is_file() const { return mapping_->memory->is_file(); }

const std::string& VariableStore::path() const { return mapping_->memory->path(); }

std::optional<uint64_t> VariableStore::unfit_version() const {
  return mapping_->memory->unfit_version();
}

absl::StatusOr<PinnedVersion> VariableStore::Pin(uint64_t version) const {
  absl::MutexLock lock(&mapping_->mutex);
  const std::optional<int> found = mapping_->Find(version);
  if (!found.has_value()) {
    ps::ErrorDetail detail;
    detail.set_kind(ps::ErrorDetail::VERSION_GONE);
    if (mapping_->HoldsAny()) detail.set_step(mapping_->Version(mapping_->word.newest));
    return MakeError(
        detail, absl::StrCat("version ", version, " is not held, the newest is ", detail.step()));
  }
  const int buffer = *found;
  Mapping::Buffer& b = mapping_->buffers[buffer];
  ++b.readers->pins;
  PinnedVersion pinned{b.held.version, b.held.epoch, b.held.metadata,
                       mapping_->Vectors(buffer).AsConst(), nullptr};
  pinned.owner = std::shared_ptr<const void>(
      pinned.vectors.weights,
      [mapping = mapping_, readers = b.readers, base = b.base](const void*) {
        absl::MutexLock unpin_lock(&mapping->mutex);
        if (--readers->pins > 0) return;
        mapping->unpinned.NotifyAll();
        if (!readers->detached) return;
        mapping->memory->Discard(base, BufferBytes(mapping->header));
        --mapping->detached;
      });
  return pinned;
}

Payload VariableStore::WeightsPayload(const PinnedVersion& pinned) const {
  return {pinned.owner, reinterpret_cast<const char*>(pinned.vectors.weights),
          static_cast<size_t>(range().size()) * sizeof(float)};
}

absl::Status VariableStore::WaitUntilWritable(absl::Duration timeout) {
  absl::MutexLock lock(&mapping_->mutex);
  const int target = mapping_->Target();
  const auto writable = [this, target]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mapping_->mutex) {
    return mapping_->buffers[target].readers->pins == 0;
  };
  if (mapping_->unpinned.Await(&mapping_->mutex, writable, timeout)) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(mapping_->CheckWritable().message(), " after ", absl::FormatDuration(timeout)));
}

absl::Status VariableStore::DetachReaders() {
  absl::MutexLock lock(&mapping_->mutex);
  return mapping_->DetachReaders();
}

absl::Status VariableStore::MakeWritable(absl::Duration patience, absl::Duration last_patience) {
  const Deadline deadline(last_patience);
  for (;;) {
    const absl::Status writable = WaitUntilWritable(patience);
    if (writable.ok()) return absl::OkStatus();
    const absl::Status detached = DetachReaders();
    if (detached.ok()) {
      LOG(WARNING) << "shard " << mapping_->header.shard
                   << " gives slow pulls a copy of what they read: " << writable.message();
      return absl::OkStatus();
    }
    if (!absl::IsResourceExhausted(detached) || deadline.HasPassed()) return detached;
  }
}

absl::StatusOr<VariableStore::ApplyBuffers> VariableStore::BeginApply() {
  absl::MutexLock lock(&mapping_->mutex);
  CHECK(!mapping_->writing.has_value()) << "version " << *mapping_->writing << " is being written";
  if (!mapping_->HoldsAny()) {
    return absl::FailedPreconditionError("the shard holds no version to go on from");
  }
  PP_RETURN_IF_ERROR(mapping_->CheckWritable());
  const int target = mapping_->Target();
  mapping_->word.whole[target] = false;
  mapping_->StoreWord();
  const uint64_t version = mapping_->Version(1 - target) + 1;
  mapping_->writing = version;
  mapping_->is_fill = false;
  return ApplyBuffers{version, mapping_->Vectors(1 - target).AsConst(), mapping_->Vectors(target)};
}

absl::StatusOr<StateVectors> VariableStore::BeginFill(uint64_t version) {
  absl::MutexLock lock(&mapping_->mutex);
  CHECK(!mapping_->writing.has_value()) << "version " << *mapping_->writing << " is being written";
  PP_RETURN_IF_ERROR(mapping_->CheckWritable());
  const int target = mapping_->Target();
  mapping_->word.whole[target] = false;
  mapping_->StoreWord();
  mapping_->writing = version;
  mapping_->is_fill = true;
  return mapping_->Vectors(target);
}

absl::Status VariableStore::Commit(uint64_t epoch, absl::string_view metadata) {
  absl::MutexLock lock(&mapping_->mutex);
  CHECK(mapping_->writing.has_value()) << "no version is being written";
  const uint64_t version = *mapping_->writing;
  mapping_->writing.reset();
  const int64_t max_bytes = MaxMetadataBytes(mapping_->header);
  if (static_cast<int64_t>(metadata.size()) > max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("metadata of version ", version, " has ",
                                                     metadata.size(), " bytes, there is room for ",
                                                     max_bytes));
  }
  const int target = mapping_->Target();
  WriteVersionRecord(version, epoch, metadata,
                     mapping_->memory->data() + RecordOffset(mapping_->header, target));
  mapping_->buffers[target].held = {version, epoch, std::string(metadata)};
  mapping_->word.whole[target] = true;
  mapping_->word.newest = target;
  if (mapping_->is_fill) mapping_->word.whole[1 - target] = false;
  mapping_->StoreWord();
  return absl::OkStatus();
}

void VariableStore::Abandon() {
  absl::MutexLock lock(&mapping_->mutex);
  mapping_->writing.reset();
}

absl::Status VariableStore::UseVersion(uint64_t version) {
  absl::MutexLock lock(&mapping_->mutex);
  CHECK(!mapping_->writing.has_value()) << "version " << *mapping_->writing << " is being written";
  const std::optional<int> found = mapping_->Find(version);
  if (!found.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("version ", version, " is not held"));
  }
  const int other = 1 - *found;
  if (mapping_->word.whole[other] && mapping_->Version(other) > version) {
    mapping_->word.whole[other] = false;
  }
  mapping_->word.newest = *found;
  mapping_->StoreWord();
  return absl::OkStatus();
}

absl::Status VariableStore::AdoptFile() { return mapping_->memory->AdoptFile(); }

absl::Status VariableStore::RemoveFile() { return mapping_->memory->RemoveFile(); }

}  // namespace pushpull
