// CRC32C of the chunks of the versions pulled last: all clones pull the same version, its checksums
// are computed once.
#ifndef PUSHPULL_COMMON_RPC_CHECKSUM_CACHE_H_
#define PUSHPULL_COMMON_RPC_CHECKSUM_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

#include "common/ps_handler.h"

namespace pushpull {

// The checksums of one snapshot's chunks. Thread-safe; two threads that ask for the same chunk at
// the same moment may both compute it.
class SnapshotChecksums {
 public:
  explicit SnapshotChecksums(const PullSnapshot& snapshot);

  // Of that chunk of the snapshot (ChunkOfSnapshot).
  uint32_t Get(uint32_t chunk);
  // The same, and copies the chunk: both in one go where the checksum is not known yet.
  uint32_t Copy(uint32_t chunk, char* to);
  bool IsOf(const PullSnapshot& snapshot) const;

 private:
  std::optional<uint32_t> Find(uint32_t chunk) ABSL_LOCKS_EXCLUDED(mutex_);
  uint32_t Keep(uint32_t chunk, uint32_t crc) ABSL_LOCKS_EXCLUDED(mutex_);

  const PullSnapshot
      snapshot_;  // without its owner: never pins a version, read only while a puller does
  absl::Mutex mutex_;
  std::vector<std::optional<uint32_t>> known_ ABSL_GUARDED_BY(mutex_);
};

// Thread-safe.
class ChecksumCache {
 public:
  // Get may be called while the caller holds snapshot.payload.owner.
  std::shared_ptr<SnapshotChecksums> For(const PullSnapshot& snapshot);

 private:
  static constexpr size_t kEntries = 8;

  absl::Mutex mutex_;
  std::vector<std::shared_ptr<SnapshotChecksums>> entries_ ABSL_GUARDED_BY(mutex_);
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_CHECKSUM_CACHE_H_
