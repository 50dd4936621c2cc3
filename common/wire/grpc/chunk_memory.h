// A pool of memory for the bytes of chunks. A server stages chunks of the same sizes in every step.
// On the general heap, the socket reader's small buffers would occupy parts of the freed chunks, so
// that the next chunks would not fit and the heap would grow.
#ifndef PUSHPULL_COMMON_WIRE_GRPC_CHUNK_MEMORY_H_
#define PUSHPULL_COMMON_WIRE_GRPC_CHUNK_MEMORY_H_

#include <cstddef>
#include <memory>

namespace pushpull {

// Most bytes that the pool keeps while they are unused.
inline constexpr size_t kMaxKeptChunkBytes = size_t{256} << 20;

// Returns at least size_bytes of uninitialised memory, which goes back to the pool when the last
// reference is dropped. Thread-safe; the reference may be dropped on any thread. Sizes below half
// of the first chunk's size or above Sharding::kChunkBytes bypass the pool and use the heap.
std::shared_ptr<char[]> TakeChunkMemory(size_t size_bytes);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRPC_CHUNK_MEMORY_H_
