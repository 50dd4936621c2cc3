// Memory that finds accesses outside of its blocks and to blocks that have been freed.
//
// A block lies between two guard zones. A fresh block is filled with huge negative numbers, a freed
// one with NaN patterns. Freed blocks are kept for a while, the last 64 MiB of them, before the
// host gets their memory back, so that a write to one of them can be found, and a read is a NaN. An
// error ends the process with a message.
#ifndef PUSHPULL_KERNELS_CUDA_EMULATION_GUARDED_MEMORY_H_
#define PUSHPULL_KERNELS_CUDA_EMULATION_GUARDED_MEMORY_H_

#include <cstddef>
#include <deque>
#include <string>

namespace pushpull::emulation {

// Not thread-safe.
class GuardedMemory {
 public:
  // `name` says in messages what memory it is.
  explicit GuardedMemory(std::string name) : name_(std::move(name)) {}
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  // Returns a block at a multiple of 256, or null if the host has no memory. The caller frees it.
  // While launches are listed, only the guard zones are filled, because the block may be as large
  // as a GPU's memory.
  void* Allocate(size_t bytes);
  // Checks the guard zones of a block from Allocate, and fills and keeps it.
  void Free(void* data, size_t bytes);

  // Checks the guard zones of a block that has not been freed.
  void CheckGuards(const void* data, size_t bytes) const;
  // Checks that nothing was written to the freed blocks that are kept.
  void CheckFreed() const;

 private:
  struct Freed {
    unsigned char* data = nullptr;
    size_t bytes = 0;
  };
  void CheckFreed(const Freed& block) const;

  const std::string name_;
  std::deque<Freed> freed_;
  size_t freed_bytes_ = 0;
};

}  // namespace pushpull::emulation

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_GUARDED_MEMORY_H_
