// Memory for the bytes of one chunk. What is let go is kept for the next chunk: a server stages
// the same chunks in every step, and between the socket reader's small buffers the general heap
// would find no room for them and grow.
#ifndef PUSHPULL_COMMON_RPC_CHUNK_MEMORY_H_
#define PUSHPULL_COMMON_RPC_CHUNK_MEMORY_H_

#include <cstddef>
#include <memory>

namespace pushpull {

// Most bytes that are kept while nobody uses them.
inline constexpr size_t kMaxKeptChunkBytes = size_t{256} << 20;

// At least size_bytes, uninitialised. Thread-safe; may be let go on any thread. Sizes below a
// half of the first chunk's, and above Sharding::kChunkBytes, come from the heap and return to it.
std::shared_ptr<char[]> TakeChunkMemory(size_t size_bytes);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_CHUNK_MEMORY_H_
