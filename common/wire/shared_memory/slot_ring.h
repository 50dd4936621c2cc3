// One direction of a chunk exchange: a ring of slots in shared memory that one process fills in
// order and another process empties. Message n lies in slot n % slots. The slot is free again when
// the reader has released message n. The ring has no notifications: a gRPC message tells the reader
// that a message is there, and its number.
//
// Neither side trusts the other. No address is ever computed from a value in shared memory; the
// counters there only decide whether a slot may be read or written. Wrong counters can therefore
// corrupt payloads, which their checksums reveal, but no other memory.
#ifndef PUSHPULL_COMMON_WIRE_SHARED_MEMORY_SLOT_RING_H_
#define PUSHPULL_COMMON_WIRE_SHARED_MEMORY_SLOT_RING_H_

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

// The part of a ring's state that lies in shared memory. All zero at first. Each counter has a
// separate cache line. Accessed with std::atomic_ref.
struct RingCounters {
  alignas(64) uint64_t published;  // set by the writer: messages below are complete
  alignas(64) uint64_t released;   // set by the reader: messages below are no longer needed
};

// The side that fills slots. A thread claims the writer with TryBegin and gives it back with End.
// Only the thread that has claimed it may call End, Reserve and Publish.
class RingWriter {
 public:
  // counters and slots (shape.slots * shape.slot_bytes bytes) must outlive the writer.
  RingWriter(RingCounters* counters, char* slots, RingShape shape)
      : counters_(counters), slots_(slots), shape_(shape) {}

  // Claims the writer. Returns false if it is claimed already. Frees the slots of messages that
  // were published earlier and never released, because the calls that sent them are over.
  bool TryBegin();
  void End();

  // The slot for the next message; null if the message is too large or no slot is free.
  char* Reserve(size_t size_bytes);
  // Publishes the message in the slot that Reserve returned, and returns its number.
  uint64_t Publish();

 private:
  RingCounters* const counters_;
  char* const slots_;
  const RingShape shape_;
  std::atomic<bool> taken_{false};
  // Used only by the thread that has claimed the writer.
  uint64_t next_ = 0;      // number of the next message
  uint64_t given_up_ = 0;  // messages below were sent by calls that are over
};

// The side that empties slots. Thread-safe.
class RingReader {
 public:
  // counters and slots must outlive the reader.
  RingReader(RingCounters* counters, const char* slots, RingShape shape)
      : counters_(counters), slots_(slots), shape_(shape) {}

  // The bytes of a message, valid until Release. Messages are read in increasing order; a number
  // may be left out if the writer has given that message up. INVALID_ARGUMENT: the message has not
  // been published, was released or overwritten, or is larger than a slot.
  absl::StatusOr<const char*> Message(uint64_t number, size_t size_bytes) const;
  // Releases this message and all earlier ones.
  void Release(uint64_t number);

 private:
  RingCounters* const counters_;
  const char* const slots_;
  const RingShape shape_;
  mutable absl::Mutex mutex_;
  uint64_t released_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SHARED_MEMORY_SLOT_RING_H_
