#include "common/wire/grpc/chunk_memory.h"

#include <array>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

#include "common/model/sharding.h"

namespace pushpull {
namespace {

// The chunks of a large shard have 1, 2, 4 or 8 times kSmallestBytes (sharding.h). There is one
// kind of block for each of these sizes.
constexpr size_t kLargestBytes = Sharding::kChunkBytes;
constexpr size_t kSmallestBytes = Sharding::kFirstChunkElements * sizeof(float);

class Blocks {
 public:
  std::shared_ptr<char[]> Take(size_t size_bytes) {
    int kind = 0;
    while (size_bytes > BlockBytes(kind)) ++kind;
    return std::shared_ptr<char[]>(TakeBlock(kind),
                                   [this, kind](char* block) { Return(kind, block); });
  }

 private:
  static constexpr int kKinds = 4;
  static_assert(kSmallestBytes << (kKinds - 1) == kLargestBytes);
  static size_t BlockBytes(int kind) { return kSmallestBytes << kind; }

  char* TakeBlock(int kind) {
    {
      absl::MutexLock lock(&mutex_);
      std::vector<char*>& kept = kept_[kind];
      if (!kept.empty()) {
        char* const block = kept.back();
        kept.pop_back();
        kept_bytes_ -= BlockBytes(kind);
        return block;
      }
    }
    return new char[BlockBytes(kind)];
  }

  void Return(int kind, char* block) {
    {
      absl::MutexLock lock(&mutex_);
      if (kept_bytes_ + BlockBytes(kind) <= kMaxKeptChunkBytes) {
        kept_bytes_ += BlockBytes(kind);
        kept_[kind].push_back(block);
        return;
      }
    }
    delete[] block;
  }

  absl::Mutex mutex_;
  size_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<std::vector<char*>, kKinds> kept_ ABSL_GUARDED_BY(mutex_);
};

// Never destroyed: payloads may outlive objects with static storage duration.
Blocks& AllBlocks() {
  static Blocks* const blocks = new Blocks();
  return *blocks;
}

}  // namespace

std::shared_ptr<char[]> TakeChunkMemory(size_t size_bytes) {
  if (size_bytes < kSmallestBytes / 2 || size_bytes > kLargestBytes) {
    return std::shared_ptr<char[]>(new char[size_bytes]);
  }
  return AllBlocks().Take(size_bytes);
}

}  // namespace pushpull
