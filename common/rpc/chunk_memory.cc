#include "common/rpc/chunk_memory.h"

#include <array>
#include <atomic>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

#include "common/sharding.h"

namespace pushpull {
namespace {

// One kind of block per size of chunk that a large shard is cut into.
constexpr size_t kLargestBytes = Sharding::kChunkBytes;
constexpr size_t kSmallestBytes = Sharding::kFirstChunkElements * sizeof(float);

std::atomic<size_t> kept_bytes{0};  // of all kinds

class Blocks {
 public:
  explicit Blocks(size_t block_bytes) : block_bytes_(block_bytes) {}

  char* Take() {
    {
      absl::MutexLock lock(&mutex_);
      if (!kept_.empty()) {
        char* const block = kept_.back();
        kept_.pop_back();
        kept_bytes -= block_bytes_;
        return block;
      }
    }
    return new char[block_bytes_];
  }

  void Return(char* block) {
    {
      absl::MutexLock lock(&mutex_);
      if (kept_bytes + block_bytes_ <= kMaxKeptChunkBytes) {
        kept_bytes += block_bytes_;
        kept_.push_back(block);
        return;
      }
    }
    delete[] block;
  }

 private:
  const size_t block_bytes_;
  absl::Mutex mutex_;
  std::vector<char*> kept_ ABSL_GUARDED_BY(mutex_);
};

// The smallest kind that holds size_bytes. Never destroyed: payloads may outlive static objects.
Blocks& BlocksFor(size_t size_bytes) {
  static std::array<Blocks, 4>& kinds =
      *new std::array<Blocks, 4>{Blocks(kLargestBytes / 8), Blocks(kLargestBytes / 4),
                                 Blocks(kLargestBytes / 2), Blocks(kLargestBytes)};
  static_assert(kSmallestBytes == kLargestBytes / 8);
  int kind = 0;
  while (size_bytes > kSmallestBytes << kind) ++kind;
  return kinds[kind];
}

}  // namespace

std::shared_ptr<char[]> TakeChunkMemory(size_t size_bytes) {
  if (size_bytes < kSmallestBytes / 2 || size_bytes > kLargestBytes) {
    return std::shared_ptr<char[]>(new char[size_bytes]);
  }
  Blocks& blocks = BlocksFor(size_bytes);
  return std::shared_ptr<char[]>(blocks.Take(), [&blocks](char* block) { blocks.Return(block); });
}

}  // namespace pushpull
