// Encodes the chunks of pulled versions, and caches the CRC32Cs of recent ones. All clones pull the
// same version, so its checksums need to be computed only once.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_CHECKSUM_CACHE_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_CHECKSUM_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

#include "common/wire/gradient_codec.h"
#include "common/wire/ps_handler.h"

namespace pushpull {

// The encoded chunks of one snapshot, and their checksums. Thread-safe; two threads that ask for
// the same chunk at the same time may both compute its checksum.
//
// The object does not keep the snapshot's bytes alive. Get and Copy read them, so the caller must
// hold a copy of the snapshot's payload.owner meanwhile.
class SnapshotChecksums {
 public:
  // `codec` must outlive the object.
  SnapshotChecksums(const PullSnapshot& snapshot, const GradientCodec* codec);

  // Returns the size of a chunk as ChunkOfSnapshot cuts it, encoded.
  size_t EncodedBytes(uint32_t chunk) const;
  // Returns the CRC32C of a chunk. CHECKs that the codec is float32.
  uint32_t Get(uint32_t chunk);
  // Encodes the chunk to `to`, EncodedBytes(chunk) bytes, and returns the CRC32C of what was
  // written. If a float32 chunk's checksum is not known yet, one pass over the bytes does both.
  uint32_t Copy(uint32_t chunk, char* to);
  // Returns whether these are the checksums of this snapshot (its bytes are at the same address),
  // encoded with this codec.
  bool IsOf(const PullSnapshot& snapshot, const GradientCodec* codec) const;

 private:
  std::optional<uint32_t> Find(uint32_t chunk) ABSL_LOCKS_EXCLUDED(mutex_);
  uint32_t Keep(uint32_t chunk, uint32_t crc) ABSL_LOCKS_EXCLUDED(mutex_);

  // Its payload.owner is null, so that the cache does not pin a version.
  const PullSnapshot snapshot_;
  const GradientCodec* const codec_;
  absl::Mutex mutex_;
  std::vector<std::optional<uint32_t>> known_ ABSL_GUARDED_BY(mutex_);
};

// Keeps the checksums of the last kEntries snapshots. Thread-safe.
class ChecksumCache {
 public:
  // The checksums of `snapshot`; the same object for every caller with the same snapshot and codec.
  std::shared_ptr<SnapshotChecksums> For(const PullSnapshot& snapshot, const GradientCodec* codec);

 private:
  static constexpr size_t kEntries = 8;

  absl::Mutex mutex_;
  std::vector<std::shared_ptr<SnapshotChecksums>> entries_ ABSL_GUARDED_BY(mutex_);
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_CHECKSUM_CACHE_H_
