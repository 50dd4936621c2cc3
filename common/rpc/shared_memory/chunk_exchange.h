// Shared memory for the payloads of chunks between a ps task and one worker on its machine: a ring
// of slots for pushes and one for pulls (slot_ring.h).
//
//   offset  what
//   0       token, 8 bytes
//   64      RingCounters of the pushes, then of the pulls
//   4096    slots of the pushes, then those of the pulls
//
// The server makes it and says where it is (OpenSharedMemoryReply); chunks then name the message in
// the ring (SharedChunk) instead of carrying their bytes.
#ifndef PUSHPULL_COMMON_RPC_SHARED_MEMORY_CHUNK_EXCHANGE_H_
#define PUSHPULL_COMMON_RPC_SHARED_MEMORY_CHUNK_EXCHANGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "common/rpc/shared_memory/sealed_memory.h"
#include "common/rpc/shared_memory/slot_ring.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// Thread-safe.
class ChunkExchange {
 public:
  // The server's side, for the chunks of a shard of so many bytes: as many slots each way as it has
  // chunks, at most kMaxSlots. Errors as SealedMemory::Create.
  static absl::StatusOr<std::shared_ptr<ChunkExchange>> Create(int64_t shard_bytes);
  // The worker's side of what Describe has told. FAILED_PRECONDITION: it is not to be had here, and
  // why.
  static absl::StatusOr<std::shared_ptr<ChunkExchange>> Attach(
      const ps::OpenSharedMemoryReply& reply);

  // Everything of the reply but shard_bytes.
  void Describe(ps::OpenSharedMemoryReply* reply) const;
  uint64_t token() const { return token_; }

  // Towards the other side. For SendTurn.
  RingWriter& writer() { return writer_; }

  // Copies a payload that the other side has put here to where `place` wants it, lets its slot go,
  // and returns the CRC32C of what was copied. INVALID_ARGUMENT: `chunk` names no such payload.
  // Errors of `place` as they are.
  using PlaceFn = absl::FunctionRef<absl::StatusOr<char*>(size_t size_bytes)>;
  absl::StatusOr<uint32_t> Take(const ps::SharedChunk& chunk, PlaceFn place);

  // False: another call receives. For ReceiveTurn.
  bool TryReceive() { return !receiving_.exchange(true, std::memory_order_acquire); }
  void EndReceive() { receiving_.store(false, std::memory_order_release); }

  // Bounds what an exchange costs: 16 MiB each way.
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

// The right to send chunks through an exchange, for the time of one call.
class SendTurn {
 public:
  // exchange: null, or shared with it. Without a turn every chunk is refused.
  explicit SendTurn(std::shared_ptr<ChunkExchange> exchange);
  ~SendTurn();
  SendTurn(const SendTurn&) = delete;
  SendTurn& operator=(const SendTurn&) = delete;

  // Puts a payload into the exchange by `copy`, which fills the slot it is given, and says where it
  // lies. Nothing: it has to be sent otherwise (no turn, no free slot, too large, or empty).
  std::optional<ps::SharedChunk> Put(size_t size_bytes, absl::FunctionRef<void(char*)> copy);

 private:
  const std::shared_ptr<ChunkExchange> exchange_;  // null without a turn
};

// The right to be sent chunks through an exchange, for the time of one call: the messages of two
// calls at once would release each other.
class ReceiveTurn {
 public:
  // exchange: as for SendTurn.
  explicit ReceiveTurn(std::shared_ptr<ChunkExchange> exchange);
  ~ReceiveTurn();
  ReceiveTurn(const ReceiveTurn&) = delete;
  ReceiveTurn& operator=(const ReceiveTurn&) = delete;

  // Null without a turn: chunks have to come otherwise.
  ChunkExchange* exchange() const { return exchange_.get(); }

 private:
  const std::shared_ptr<ChunkExchange> exchange_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_SHARED_MEMORY_CHUNK_EXCHANGE_H_
