// The chunks that have arrived for contributions that are not applied yet. Each replica stages one
// contribution, under the newest grant seen. Memory is bounded by the number of replicas times the
// size of the shard. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_STAGING_H_
#define PUSHPULL_PS_SERVER_CORE_STAGING_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/wire/encoded_chunk.h"

namespace pushpull {

// Identifies a contribution of a replica. `number` is the step (sync) or the number of the push
// under its grant (async).
struct ContributionId {
  uint64_t grant = 0;
  uint64_t number = 0;
  friend auto operator<=>(const ContributionId&, const ContributionId&) = default;
};

class Staging {
 public:
  enum class Added {
    kNew,
    kDuplicate,  // the same chunk with the same checksum is staged
    kConflict,   // the same chunk with another checksum is staged, and stays
    kFenced,     // a newer grant has been seen for the replica
    kOutdated,   // same grant, but a later push has begun
  };

  explicit Staging(int num_chunks) : num_chunks_(num_chunks) {}

  // Stages a chunk; chunk < num_chunks. A newer grant, or a later number under the same grant,
  // drops what the replica had staged before. Keeps a reference to the bytes only for kNew.
  Added Add(uint32_t replica, const ContributionId& id, uint32_t chunk, uint32_t crc32c,
            const EncodedChunk& encoded);

  // Returns whether every chunk of the contribution is staged.
  bool IsComplete(uint32_t replica, const ContributionId& id) const;
  // Returns all chunks in order, or nothing if one is missing.
  std::optional<std::vector<EncodedChunk>> AllChunks(uint32_t replica,
                                                     const ContributionId& id) const;
  // Returns one staged chunk if the replica stages a contribution with this number, under whatever
  // grant.
  std::optional<EncodedChunk> ChunkOf(uint32_t replica, uint64_t number, uint32_t chunk) const;
  // Returns the newest grant seen for the replica, 0 for none.
  uint64_t newest_grant(uint32_t replica) const;

  // Drops every staged byte but remembers the grants.
  void DropAll();
  // Drops the replica's contribution if it is `id`.
  void Drop(uint32_t replica, const ContributionId& id);
  // Forgets everything, grants included, for a new epoch.
  void Reset();

  int64_t staged_bytes() const { return staged_bytes_; }

 private:
  struct Chunk {
    bool present = false;
    uint32_t crc32c = 0;
    EncodedChunk encoded;
  };
  struct Replica {
    uint64_t newest_grant = 0;
    ContributionId id;
    std::vector<Chunk> chunks;  // empty: the replica stages nothing
  };

  // Returns whether the replica stages this contribution.
  bool Holds(const Replica& replica, const ContributionId& id) const;
  const Replica* Find(uint32_t replica, const ContributionId& id) const;
  void Drop(Replica* replica);

  int num_chunks_;
  std::map<uint32_t, Replica> replicas_;
  int64_t staged_bytes_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_STAGING_H_
