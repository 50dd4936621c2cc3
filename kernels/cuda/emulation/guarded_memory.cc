// Tested by tests/kernels/cuda/emulation/runtime_test.cc.
#include "kernels/cuda/emulation/guarded_memory.h"

#include <cstdlib>
#include <cstring>

#include "glog/logging.h"

#include "kernels/cuda/emulation/checks.h"
#include "kernels/cuda/emulation/launch_list.h"

namespace pushpull::emulation {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr size_t kKeptBytes = size_t{64} << 20;
constexpr unsigned char kFresh = 0xfb;  // read as float or bfloat16, a huge negative number
constexpr unsigned char kFreed = 0xff;  // read as float or bfloat16, a NaN

// Returns the first byte that differs from `value`, or `bytes`.
size_t FirstOther(const unsigned char* data, size_t bytes, unsigned char value) {
  if (bytes == 0 || (data[0] == value && std::memcmp(data, data + 1, bytes - 1) == 0)) return bytes;
  size_t i = 0;
  while (data[i] == value) ++i;
  return i;
}

}  // namespace

GuardedMemory::~GuardedMemory() {
  for (const Freed& block : freed_) std::free(block.data - kGuardBytes);
}

void* GuardedMemory::Allocate(size_t bytes) {
  const size_t whole = (bytes + 2 * kGuardBytes + 255) / 256 * 256;
  auto* const base = static_cast<unsigned char*>(std::aligned_alloc(256, whole));
  if (base == nullptr) return nullptr;
  if (ListsLaunches()) {
    std::memset(base, kFresh, kGuardBytes);
    std::memset(base + kGuardBytes + bytes, kFresh, kGuardBytes);
  } else {
    std::memset(base, kFresh, whole);
  }
  return base + kGuardBytes;
}

void GuardedMemory::Free(void* data, size_t bytes) {
  CheckGuards(data, bytes);
  auto* const begin = static_cast<unsigned char*>(data);
  if (ListsLaunches() || !ChecksAreOn() || bytes > kKeptBytes) {
    std::free(begin - kGuardBytes);
    return;
  }
  std::memset(begin, kFreed, bytes);
  freed_.push_back({begin, bytes});
  freed_bytes_ += bytes;
  while (freed_bytes_ > kKeptBytes) {
    const Freed oldest = freed_.front();
    CheckFreed(oldest);
    freed_.pop_front();
    freed_bytes_ -= oldest.bytes;
    std::free(oldest.data - kGuardBytes);
  }
}

void GuardedMemory::CheckGuards(const void* data, size_t bytes) const {
  const auto* const begin = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < kGuardBytes; ++i) {
    CHECK(begin[-1 - static_cast<ptrdiff_t>(i)] == kFresh)
        << "something was written " << i + 1 << " bytes before a block of " << bytes << " bytes of "
        << name_;
    CHECK(begin[bytes + i] == kFresh) << "something was written " << i << " bytes after a block of "
                                      << bytes << " bytes of " << name_;
  }
}

void GuardedMemory::CheckFreed() const {
  for (const Freed& block : freed_) CheckFreed(block);
}

void GuardedMemory::CheckFreed(const Freed& block) const {
  const size_t at = FirstOther(block.data, block.bytes, kFreed);
  CHECK(at == block.bytes) << "something was written to byte " << at << " of a block of "
                           << block.bytes << " bytes of " << name_ << " after it had been freed";
  CheckGuards(block.data, block.bytes);
}

}  // namespace pushpull::emulation
