#include "common/wire/shared_memory/chunk_exchange.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"

#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/model/sharding.h"

namespace pushpull {
namespace {

constexpr size_t kCountersOffset = 64;
constexpr size_t kSlotsOffset = 4096;
static_assert(kCountersOffset + 2 * sizeof(RingCounters) <= kSlotsOffset);

size_t RingBytes(RingShape shape) { return size_t{shape.slots} * shape.slot_bytes; }
size_t ExchangeBytes(RingShape shape) { return kSlotsOffset + 2 * RingBytes(shape); }

// One slot per chunk, at most kMaxSlots, each as large as the largest chunk in whole pages.
RingShape ShapeFor(int64_t shard_bytes) {
  constexpr int64_t kPageBytes = 4096;
  const int64_t elements = shard_bytes / static_cast<int64_t>(sizeof(float));
  const int slots = std::min<int>(NumChunks(elements), ChunkExchange::kMaxSlots);
  int64_t largest = 1;
  for (int chunk = 0; chunk < slots; ++chunk) {
    largest = std::max(largest, ChunkRange(elements, chunk).size());
  }
  const int64_t bytes = largest * static_cast<int64_t>(sizeof(float));
  return {static_cast<uint32_t>(slots),
          static_cast<uint32_t>((bytes + kPageBytes - 1) / kPageBytes * kPageBytes)};
}

RingCounters* CountersOf(const SealedMemory& memory, int ring) {
  return reinterpret_cast<RingCounters*>(memory.data() + kCountersOffset) + ring;
}
char* SlotsOf(const SealedMemory& memory, RingShape shape, int ring) {
  return memory.data() + kSlotsOffset + ring * RingBytes(shape);
}

constexpr int kPushes = 0;
constexpr int kPulls = 1;

}  // namespace

ChunkExchange::ChunkExchange(std::unique_ptr<SealedMemory> memory, RingShape shape, uint64_t token,
                             Side side)
    : memory_(std::move(memory)),
      shape_(shape),
      token_(token),
      writer_(CountersOf(*memory_, side == Side::kServer ? kPulls : kPushes),
              SlotsOf(*memory_, shape, side == Side::kServer ? kPulls : kPushes), shape),
      reader_(CountersOf(*memory_, side == Side::kServer ? kPushes : kPulls),
              SlotsOf(*memory_, shape, side == Side::kServer ? kPushes : kPulls), shape) {}

absl::StatusOr<std::shared_ptr<ChunkExchange>> ChunkExchange::Create(int64_t shard_bytes) {
  const RingShape shape = ShapeFor(shard_bytes);
  PP_ASSIGN_OR_RETURN(std::unique_ptr<SealedMemory> memory,
                      SealedMemory::Create(ExchangeBytes(shape)));
  absl::BitGen random;
  const uint64_t token = absl::Uniform<uint64_t>(absl::IntervalClosed, random, 1, ~uint64_t{0});
  std::memcpy(memory->data(), &token, sizeof(token));
  return std::shared_ptr<ChunkExchange>(
      new ChunkExchange(std::move(memory), shape, token, Side::kServer));
}

absl::StatusOr<std::shared_ptr<ChunkExchange>> ChunkExchange::Attach(
    const ps::OpenSharedMemoryReply& reply) {
  const RingShape shape{reply.slots(), reply.slot_bytes()};
  if (shape.slots == 0 || shape.slots > kMaxSlots || shape.slot_bytes == 0 ||
      shape.slot_bytes > Sharding::kChunkBytes || reply.token() == 0) {
    return absl::FailedPreconditionError(absl::StrCat("the server offers shared memory of ",
                                                      shape.slots, " slots of ", shape.slot_bytes,
                                                      " bytes; use binaries of one build"));
  }
  PP_ASSIGN_OR_RETURN(
      std::unique_ptr<SealedMemory> memory,
      SealedMemory::Attach(reply.pid(), reply.file_descriptor(), ExchangeBytes(shape)));
  uint64_t token = 0;
  std::memcpy(&token, memory->data(), sizeof(token));
  if (token != reply.token()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the shared memory of process ", reply.pid(), " is not this server's"));
  }
  return std::shared_ptr<ChunkExchange>(
      new ChunkExchange(std::move(memory), shape, token, Side::kWorker));
}

void ChunkExchange::Describe(ps::OpenSharedMemoryReply* reply) const {
  reply->set_pid(getpid());
  reply->set_file_descriptor(memory_->descriptor());
  reply->set_token(token_);
  reply->set_slots(shape_.slots);
  reply->set_slot_bytes(shape_.slot_bytes);
}

absl::StatusOr<uint32_t> ChunkExchange::Take(const ps::SharedChunk& chunk, PlaceFn place) {
  if (chunk.token() != token_) {
    return absl::InvalidArgumentError("the payload lies in shared memory that is not this peer's");
  }
  PP_ASSIGN_OR_RETURN(const char* const from, reader_.Message(chunk.number(), chunk.size_bytes()));
  PP_ASSIGN_OR_RETURN(char* const to, place(chunk.size_bytes()));
  const uint32_t crc = CopyWithCrc32c(from, chunk.size_bytes(), to);
  reader_.Release(chunk.number());
  return crc;
}

SendTurn::SendTurn(std::shared_ptr<ChunkExchange> exchange)
    : exchange_(exchange != nullptr && exchange->writer().TryBegin() ? std::move(exchange)
                                                                     : nullptr) {}

SendTurn::~SendTurn() {
  if (exchange_ != nullptr) exchange_->writer().End();
}

std::optional<ps::SharedChunk> SendTurn::Put(size_t size_bytes,
                                             absl::FunctionRef<void(char*)> copy) {
  if (exchange_ == nullptr || size_bytes == 0) return std::nullopt;
  char* const slot = exchange_->writer().Reserve(size_bytes);
  if (slot == nullptr) return std::nullopt;
  copy(slot);
  ps::SharedChunk chunk;
  chunk.set_token(exchange_->token());
  chunk.set_number(exchange_->writer().Publish());
  chunk.set_size_bytes(static_cast<uint32_t>(size_bytes));
  return chunk;
}

ReceiveTurn::ReceiveTurn(std::shared_ptr<ChunkExchange> exchange)
    : exchange_(exchange != nullptr && exchange->TryReceive() ? std::move(exchange) : nullptr) {}

ReceiveTurn::~ReceiveTurn() {
  if (exchange_ != nullptr) exchange_->EndReceive();
}

}  // namespace pushpull
