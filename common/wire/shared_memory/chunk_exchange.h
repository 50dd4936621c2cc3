// Shared memory through which a ps task and one clone on the same machine exchange the payloads of
// chunks. It holds two rings (slot_ring.h), one for pushes and one for pulls:
//
//   offset  contents
//   0       token, 8 bytes
//   64      RingCounters of the push ring, then of the pull ring
//   4096    slots of the push ring, then of the pull ring
//
// The server creates the memory and tells the clone where it is (OpenSharedMemoryReply). Chunks
// then name a message in the ring (SharedChunk) instead of carrying their payload.
#ifndef PUSHPULL_COMMON_WIRE_SHARED_MEMORY_CHUNK_EXCHANGE_H_
#define PUSHPULL_COMMON_WIRE_SHARED_MEMORY_CHUNK_EXCHANGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "common/wire/shared_memory/sealed_memory.h"
#include "common/wire/shared_memory/slot_ring.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// One side of an exchange. Thread-safe.
class ChunkExchange {
 public:
  // Creates the memory and the server's side, for a shard of `shard_bytes`. Each ring gets one slot
  // per chunk of the shard, at most kMaxSlots. Errors: as from SealedMemory::Create.
  static absl::StatusOr<std::shared_ptr<ChunkExchange>> Create(int64_t shard_bytes);
  // The clone's side of an exchange that the server has described. FAILED_PRECONDITION: this
  // process cannot use the memory; the message says why. RESOURCE_EXHAUSTED: it cannot be mapped.
  static absl::StatusOr<std::shared_ptr<ChunkExchange>> Attach(
      const ps::OpenSharedMemoryReply& reply);

  // Fills in all fields of the reply except shard_bytes.
  void Describe(ps::OpenSharedMemoryReply* reply) const;
  // Random number that names the exchange; never 0.
  uint64_t token() const { return token_; }

  // The ring that this side writes. For SendTurn only.
  RingWriter& writer() { return writer_; }

  // Copies a payload from the other side to the memory that `place` returns, releases its slot, and
  // returns the CRC32C of the copied bytes. INVALID_ARGUMENT: `chunk` names no payload in this
  // exchange. Errors of `place` are returned unchanged.
  using PlaceFn = absl::FunctionRef<absl::StatusOr<char*>(size_t size_bytes)>;
  absl::StatusOr<uint32_t> Take(const ps::SharedChunk& chunk, PlaceFn place);

  // Claims the right to receive, until EndReceive. Returns false if another call has it. For
  // ReceiveTurn only.
  bool TryReceive() { return !receiving_.exchange(true, std::memory_order_acquire); }
  void EndReceive() { receiving_.store(false, std::memory_order_release); }

  // Limits an exchange to 16 MiB of slots in each direction.
  static constexpr uint32_t kMaxSlots = 16;

 private:
  enum class Side { kServer, kWorker };
  ChunkExchange(std::unique_ptr<SealedMemory> memory, RingShape shape, uint64_t token, Side side);

  const std::unique_ptr<SealedMemory> memory_;
  const RingShape shape_;
  const uint64_t token_;
  RingWriter writer_;
  RingReader reader_;
  std::atomic<bool> receiving_{false};
};

// The right to send chunks through an exchange, for the duration of one call. Not thread-safe.
class SendTurn {
 public:
  // exchange may be null. If it is, or if another call is sending, this object has no right to
  // send, and Put always returns nullopt.
  explicit SendTurn(std::shared_ptr<ChunkExchange> exchange);
  ~SendTurn();
  SendTurn(const SendTurn&) = delete;
  SendTurn& operator=(const SendTurn&) = delete;

  // Sends a payload through the exchange: calls `copy` to fill a slot, and returns the name of the
  // message for the chunk. Returns nullopt if the payload has to travel in the chunk: without the
  // right to send, without a free slot, or for a payload that is too large or empty.
  std::optional<ps::SharedChunk> Put(size_t size_bytes, absl::FunctionRef<void(char*)> copy);

 private:
  const std::shared_ptr<ChunkExchange> exchange_;  // null without the right to send
};

// The right to receive chunks through an exchange, for the duration of one call. Only one call may
// have it, because releasing a message also releases all earlier ones, including those of another
// call.
class ReceiveTurn {
 public:
  // exchange may be null.
  explicit ReceiveTurn(std::shared_ptr<ChunkExchange> exchange);
  ~ReceiveTurn();
  ReceiveTurn(const ReceiveTurn&) = delete;
  ReceiveTurn& operator=(const ReceiveTurn&) = delete;

  // Null without the right to receive; chunks then have to carry their payloads.
  ChunkExchange* exchange() const { return exchange_.get(); }

 private:
  const std::shared_ptr<ChunkExchange> exchange_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SHARED_MEMORY_CHUNK_EXCHANGE_H_
