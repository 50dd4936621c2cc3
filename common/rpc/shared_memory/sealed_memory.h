// Memory of a fixed size that two processes of one machine map: a memfd that nobody can shrink, so
// that neither process can take pages away from under the other. It has no name in the file system
// and is gone with the last process that has it open.
#ifndef PUSHPULL_COMMON_RPC_SHARED_MEMORY_SEALED_MEMORY_H_
#define PUSHPULL_COMMON_RPC_SHARED_MEMORY_SEALED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pushpull {

// Which machine this is, since when, and which process ids it sees: a process with the same answer
// finds ours under the same /proc/PID. Empty: the kernel does not tell.
std::string HostIdentity();

// Thread-compatible; the bytes are for whoever maps them to agree on.
class SealedMemory {
 public:
  // Zeroed, with all its pages there. RESOURCE_EXHAUSTED: no memory. UNIMPLEMENTED: the system
  // does not offer it.
  static absl::StatusOr<std::unique_ptr<SealedMemory>> Create(size_t size_bytes);
  // What process `pid` has made and has open as `descriptor`. FAILED_PRECONDITION, with the
  // reason: that is not such a memory of this size, or this process may not open it.
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

#endif  // PUSHPULL_COMMON_RPC_SHARED_MEMORY_SEALED_MEMORY_H_
