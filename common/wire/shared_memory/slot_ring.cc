#include "common/wire/shared_memory/slot_ring.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace pushpull {

bool RingWriter::TryBegin() {
  if (taken_.exchange(true, std::memory_order_acquire)) return false;
  given_up_ = next_;
  return true;
}

void RingWriter::End() { taken_.store(false, std::memory_order_release); }

char* RingWriter::Reserve(size_t size_bytes) {
  if (size_bytes > shape_.slot_bytes) return nullptr;
  const uint64_t released =
      std::atomic_ref<uint64_t>(counters_->released).load(std::memory_order_acquire);
  const uint64_t free_below = std::max(given_up_, std::min(released, next_));
  if (next_ - free_below >= shape_.slots) return nullptr;
  return slots_ + next_ % shape_.slots * shape_.slot_bytes;
}

uint64_t RingWriter::Publish() {
  const uint64_t number = next_++;
  std::atomic_ref<uint64_t>(counters_->published).store(next_, std::memory_order_release);
  return number;
}

absl::StatusOr<const char*> RingReader::Message(uint64_t number, size_t size_bytes) const {
  if (size_bytes > shape_.slot_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("message ", number, " of ", size_bytes,
                                                   " bytes in shared memory with slots of ",
                                                   shape_.slot_bytes));
  }
  const uint64_t published =
      std::atomic_ref<uint64_t>(counters_->published).load(std::memory_order_acquire);
  absl::MutexLock lock(&mutex_);
  if (number < released_ || number >= published || published - number > shape_.slots) {
    return absl::InvalidArgumentError(
        absl::StrCat("message ", number, " is not in shared memory: ", released_, " are released, ",
                     published, " published, in ", shape_.slots, " slots"));
  }
  return slots_ + number % shape_.slots * shape_.slot_bytes;
}

void RingReader::Release(uint64_t number) {
  absl::MutexLock lock(&mutex_);
  released_ = std::max(released_, number + 1);
  std::atomic_ref<uint64_t>(counters_->released).store(released_, std::memory_order_release);
}

}  // namespace pushpull
