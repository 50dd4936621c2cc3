// The chunks that have arrived of contributions that are not applied yet: per slot one
// contribution, of the newest grant. Memory is bounded by slots times the shard's size. Not
// thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_STAGING_H_
#define PUSHPULL_PS_SERVER_CORE_STAGING_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/payload.h"
#include "ps_server/core/protocol_rules.h"

namespace pushpull {

// Which contribution of a slot: number is the step (sync) or the push's sequence number (async).
struct ContributionId {
  uint64_t grant = 0;
  uint64_t number = 0;
  friend auto operator<=>(const ContributionId&, const ContributionId&) = default;
};

class Staging {
 public:
  enum class Added {
    kNew,
    kDuplicate,  // the same chunk with the same checksum is there
    kConflict,   // the same chunk with another checksum is there, and stays
    kFenced,     // a newer grant has been seen for the slot
    kOutdated,   // same grant, but a later push has begun
  };

  Staging(int num_chunks, const ProtocolRules& rules) : num_chunks_(num_chunks), rules_(rules) {}

  // chunk < num_chunks. A newer grant, or a later number under the same grant, drops what the slot
  // had.
  Added Add(uint32_t slot, const ContributionId& id, uint32_t chunk, uint32_t crc32c,
            const Payload& payload);

  // Chunks not there yet; all of them if the slot stages something else.
  std::vector<uint32_t> Missing(uint32_t slot, const ContributionId& id) const;
  // The chunks in order, if all are there.
  std::optional<std::vector<Payload>> Complete(uint32_t slot, const ContributionId& id) const;
  // One chunk of what the slot stages, if that has this number, whatever its grant.
  std::optional<Payload> ChunkOf(uint32_t slot, uint64_t number, uint32_t chunk) const;
  // Newest grant seen for the slot, 0 for none.
  uint64_t newest_grant(uint32_t slot) const;
  // Position of the slot among all that are staged, in order of their first chunk.
  int64_t ArrivalOrder(uint32_t slot) const;

  // Drops every staged byte; grants stay known.
  void DropAll();
  // Drops the slot's contribution if it is this one.
  void Drop(uint32_t slot, const ContributionId& id);
  // A new epoch: nothing staged, no grant seen.
  void Reset();

  int64_t staged_bytes() const { return staged_bytes_; }

 private:
  struct Chunk {
    bool present = false;
    uint32_t crc32c = 0;
    Payload payload;
  };
  struct Slot {
    uint64_t newest_grant = 0;
    ContributionId id;
    std::vector<Chunk> chunks;  // empty: nothing staged
    int arrived_chunks = 0;     // repeated ones included (for ProtocolRules::dedupe_chunks)
    int64_t arrival = 0;
  };

  // Whether the slot stages this contribution.
  bool Holds(const Slot& slot, const ContributionId& id) const;
  const Slot* Find(uint32_t slot, const ContributionId& id) const;
  void Drop(Slot* slot);

  int num_chunks_;
  ProtocolRules rules_;
  std::map<uint32_t, Slot> slots_;
  int64_t staged_bytes_ = 0;
  int64_t arrivals_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_STAGING_H_
