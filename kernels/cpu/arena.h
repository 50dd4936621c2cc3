// Cuts a caller's workspace into pieces. An Arena without a workspace only counts, so the code that
// takes the pieces also computes how many bytes it needs. Thread-compatible; the pieces belong to
// the workspace.
#ifndef PUSHPULL_KERNELS_CPU_ARENA_H_
#define PUSHPULL_KERNELS_CPU_ARENA_H_

#include <algorithm>
#include <cstdint>

#include "glog/logging.h"

#include "kernels/operators.h"

namespace pushpull {

class Arena {
 public:
  Arena() = default;
  explicit Arena(const Workspace& workspace)
      : data_(static_cast<char*>(workspace.data)), capacity_(workspace.bytes) {}

  // Returns the next `count` floats, 64-byte aligned and uninitialised, or null if this Arena only
  // counts. A workspace that is too small is a CHECK failure.
  float* Floats(int64_t count) { return Numbers<float>(count); }
  // The same for numbers of another type.
  template <typename T>
  T* Numbers(int64_t count) {
    const int64_t begin = used_;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    if (capacity_ < 0) return nullptr;
    CHECK_LE(used_, capacity_) << "workspace too small: ask the operators for its size";
    return reinterpret_cast<T*>(data_ + begin);
  }
  int64_t used_bytes() const { return used_; }  // by the pieces so far, with their alignment

 private:
  char* data_ = nullptr;
  int64_t capacity_ = -1;  // negative: only counts
  int64_t used_ = 0;
};

// How many copies of their scratch memory parallel tasks need: one for each thread of a ThreadPool,
// or one for each task if these are fewer, so that a pool of many threads takes no memory for
// threads without a task.
struct ScratchCopies {
  ScratchCopies(int threads, int64_t tasks)
      : one_per_task(tasks <= threads), count(std::min<int64_t>(threads, tasks)) {}
  // The copy for `task` when it runs on `thread`. No other task uses it at the same time.
  int64_t Of(int64_t task, int thread) const { return one_per_task ? task : thread; }

  bool one_per_task;
  int64_t count;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_ARENA_H_
