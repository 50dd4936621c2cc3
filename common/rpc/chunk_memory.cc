#include "common/rpc/chunk_memory.h"

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

#include "common/sharding.h"

namespace pushpull {
namespace {

constexpr size_t kBlockBytes = Sharding::kChunkBytes;
// Below it a whole block would be wasted.
constexpr size_t kSmallestBytes = kBlockBytes / 4;

class Blocks {
 public:
  char* Take() {
    {
      absl::MutexLock lock(&mutex_);
      if (!kept_.empty()) {
        char* const block = kept_.back();
        kept_.pop_back();
        return block;
      }
    }
    return new char[kBlockBytes];
  }

  void Return(char* block) {
    {
      absl::MutexLock lock(&mutex_);
      if (kept_.size() < kMaxKeptChunkBytes / kBlockBytes) {
        kept_.push_back(block);
        return;
      }
    }
    delete[] block;
  }

 private:
  absl::Mutex mutex_;
  std::vector<char*> kept_ ABSL_GUARDED_BY(mutex_);
};

// Never destroyed: payloads may outlive static objects.
Blocks& AllBlocks() {
  static Blocks* const blocks = new Blocks();
  return *blocks;
}

}  // namespace

std::shared_ptr<char[]> TakeChunkMemory(size_t size_bytes) {
  if (size_bytes < kSmallestBytes || size_bytes > kBlockBytes) {
    return std::shared_ptr<char[]>(new char[size_bytes]);
  }
  return std::shared_ptr<char[]>(AllBlocks().Take(),
                                 [](char* block) { AllBlocks().Return(block); });
}

}  // namespace pushpull
