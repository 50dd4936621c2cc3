// Memory that operators can address: the host's memory or a GPU's.
#ifndef PUSHPULL_KERNELS_MEMORY_H_
#define PUSHPULL_KERNELS_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace pushpull {

// Owns a block of memory. It can be neither copied nor moved, so the address never changes.
class Memory {
 public:
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }  // at least what was asked for

 protected:
  Memory(void* data, int64_t bytes) : data_(data), bytes_(bytes) {}

 private:
  void* const data_;
  const int64_t bytes_;
};

// Allocates memory that one set of operators can address. Thread-compatible. A source must outlive
// the memory that it allocates.
class MemorySource {
 public:
  virtual ~MemorySource() = default;

  // Returns zeroed memory, aligned to 256 bytes. On a GPU the zeroing is only queued, before the
  // work of operators that are called afterwards. RESOURCE_EXHAUSTED: there is not enough memory;
  // the message says how much was asked for and how much is available.
  virtual absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) = 0;

  // Copies from host memory to memory of this source, in order with the operators' work. It blocks
  // until `from` has been read, which on a GPU includes all operators queued before.
  virtual void Write(void* to, const void* from, int64_t bytes) = 0;
};

// The memory of the host. Blocks are aligned to a page; from 2 MiB on they use huge pages where the
// system has them. It lives as long as the process.
MemorySource* HostMemory();

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_MEMORY_H_
