// Memory that operators can address: the host's, or a GPU's.
#ifndef PUSHPULL_KERNELS_MEMORY_H_
#define PUSHPULL_KERNELS_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace pushpull {

// Owns a block of memory. Not copyable, not movable; the address stays.
class Memory {
 public:
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 protected:
  Memory(void* data, int64_t bytes) : data_(data), bytes_(bytes) {}

 private:
  void* const data_;
  const int64_t bytes_;
};

// Thread-compatible. Must outlive what it allocates.
class MemorySource {
 public:
  virtual ~MemorySource() = default;

  // Zeroed, aligned to 256 bytes. RESOURCE_EXHAUSTED says how much was wanted and how much is free.
  virtual absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) = 0;

  // Copies host memory to such memory, in order with the operators' work. `from` is free after the
  // call.
  virtual void Write(void* to, const void* from, int64_t bytes) = 0;
};

// Aligned to a page and on huge pages where the system has them.
MemorySource* HostMemory();

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_MEMORY_H_
