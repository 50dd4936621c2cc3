// Memory of fixed size that two processes on one machine map. It is a memfd sealed against
// shrinking, so that neither process can remove pages that the other one uses. It has no name in
// the file system and is freed when the last process closes it.
#ifndef PUSHPULL_COMMON_WIRE_SHARED_MEMORY_SEALED_MEMORY_H_
#define PUSHPULL_COMMON_WIRE_SHARED_MEMORY_SEALED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pushpull {

// Names the running kernel (its boot id) and the PID namespace of this process. Two processes with
// the same identity see each other under the same /proc/PID. Empty if the kernel does not provide
// it. Thread-safe.
std::string HostIdentity();

// Owns the descriptor and the mapping. Thread-compatible; the users of the memory have to
// synchronise their accesses to its bytes.
class SealedMemory {
 public:
  // Creates zeroed memory with all pages allocated. RESOURCE_EXHAUSTED: not enough memory.
  // UNIMPLEMENTED: the system has no sealed memfds.
  static absl::StatusOr<std::unique_ptr<SealedMemory>> Create(size_t size_bytes);
  // Maps memory that process `pid` created and has open as `descriptor`. FAILED_PRECONDITION: the
  // descriptor is not such memory of exactly this size, or this process may not open it; the
  // message says which. RESOURCE_EXHAUSTED: it cannot be mapped.
  static absl::StatusOr<std::unique_ptr<SealedMemory>> Attach(int64_t pid, int descriptor,
                                                              size_t size_bytes);
  ~SealedMemory();
  SealedMemory(const SealedMemory&) = delete;
  SealedMemory& operator=(const SealedMemory&) = delete;

  char* data() const { return data_; }
  int descriptor() const { return descriptor_; }

 private:
  SealedMemory(int descriptor, size_t size_bytes)
      : descriptor_(descriptor), size_bytes_(size_bytes) {}
  absl::Status Map();

  const int descriptor_;
  const size_t size_bytes_;
  char* data_ = nullptr;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SHARED_MEMORY_SEALED_MEMORY_H_
