// One direction of a chunk exchange: slots in shared memory that one process fills in turn and
// another empties. Message n lies in slot n % slots, which is free again when the other side has
// released message n. Which message is meant, and that it is there, is told by the side channel
// (a gRPC message); the ring itself wakes nobody.
//
// Neither side trusts what the other writes: an address is never computed from shared memory, and
// the counters there only say what may be read or written. Wrong ones cost the payload, which its
// checksum shows, not memory.
#ifndef PUSHPULL_COMMON_RPC_SHARED_MEMORY_SLOT_RING_H_
#define PUSHPULL_COMMON_RPC_SHARED_MEMORY_SLOT_RING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace pushpull {

struct RingShape {
  uint32_t slots = 0;
  uint32_t slot_bytes = 0;
};

// In shared memory, zero at first; each counter on a cache line of its own.
struct RingCounters {
  alignas(64) uint64_t published;  // messages, by the writer
  alignas(64) uint64_t released;   // by the reader: all messages below
};

// The filling side. TryBegin and End from any thread; the rest by whoever has the turn.
class RingWriter {
 public:
  RingWriter(RingCounters* counters, char* slots, RingShape shape)
      : counters_(counters), slots_(slots), shape_(shape) {}

  // False: somebody else has the turn. What was published in earlier turns and never released is
  // given up: their calls are over.
  bool TryBegin();
  void End();

  // Where the next message goes; null: it is too large, or no slot is free.
  char* Reserve(size_t size_bytes);
  // The message at Reserve's place is whole. Its number.
  uint64_t Publish();

 private:
  RingCounters* const counters_;
  char* const slots_;
  const RingShape shape_;
  std::atomic<bool> taken_{false};
  // Of the turn's owner.
  uint64_t next_ = 0;
  uint64_t given_up_ = 0;  // messages below are nobody's any more
};

// The emptying side. Thread-safe.
class RingReader {
 public:
  RingReader(RingCounters* counters, const char* slots, RingShape shape)
      : counters_(counters), slots_(slots), shape_(shape) {}

  // The message's bytes, until it is released. Numbers rise; those left out were given up.
  // INVALID_ARGUMENT: not published, released before, overwritten, or larger than a slot.
  absl::StatusOr<const char*> Message(uint64_t number, size_t size_bytes) const;
  // This message and all before have been read.
  void Release(uint64_t number);

 private:
  RingCounters* const counters_;
  const char* const slots_;
  const RingShape shape_;
  mutable absl::Mutex mutex_;
  uint64_t released_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_SHARED_MEMORY_SLOT_RING_H_
