#include "kernels/cuda/emulation/async_copies.h"

#include <deque>
#include <map>
#include <utility>

#include "glog/logging.h"

#include "kernels/cuda/emulation/thread_block.h"

namespace pushpull::emulation {
namespace {

struct ThreadCopies {
  std::vector<AsyncCopy> open;
  std::deque<std::vector<AsyncCopy>> groups;  // closed ones, the oldest first
};

// The threads of the running block, by their index in it.
thread_local std::map<unsigned, ThreadCopies> copies;

ThreadCopies& OfThread() {
  const ThreadPlace& place = CurrentPlace();
  const Dim3 &t = place.thread_index, &size = place.block_size;
  return copies[t.x + size.x * (t.y + size.y * t.z)];
}

}  // namespace

void StartAsyncCopy(const AsyncCopy& copy) { OfThread().open.push_back(copy); }

void CloseAsyncGroup() {
  ThreadCopies& own = OfThread();
  own.groups.push_back(std::exchange(own.open, {}));
}

std::vector<AsyncCopy> TakeAsyncCopies(int newest) {
  ThreadCopies& own = OfThread();
  std::vector<AsyncCopy> taken;
  while (static_cast<int>(own.groups.size()) > newest) {
    taken.insert(taken.end(), own.groups.front().begin(), own.groups.front().end());
    own.groups.pop_front();
  }
  return taken;
}

void BeginAsyncCopies() { copies.clear(); }

void EndAsyncCopies(const char* kernel) {
  for (const auto& [thread, own] : copies) {
    size_t left = own.open.size();
    for (const std::vector<AsyncCopy>& group : own.groups) left += group.size();
    CHECK_EQ(left, 0u) << kernel << ": thread " << thread << " has ended without waiting for "
                       << left << " asynchronous copies";
  }
}

}  // namespace pushpull::emulation
