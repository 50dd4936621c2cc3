#include "kernels/cuda/emulation/async_copies.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "glog/logging.h"

#include "kernels/cuda/emulation/thread_block.h"

namespace pushpull::emulation {
namespace {

struct ThreadCopies {
  std::vector<AsyncCopy> open;
  std::vector<std::vector<AsyncCopy>> groups;  // closed ones, the oldest first
};

// The threads of the running block, by their index in it, up to the last that has copied.
thread_local std::vector<ThreadCopies> copies;

ThreadCopies& OfThread() {
  const Dim3 t = Unpack(PackedThreadIndex()), size = Unpack(PackedBlockSize());
  const unsigned index = t.x + size.x * (t.y + size.y * t.z);
  if (copies.size() <= index) copies.resize(index + 1);
  return copies[index];
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
  const auto end = own.groups.end() - std::min<ptrdiff_t>(newest, std::ssize(own.groups));
  for (auto group = own.groups.begin(); group != end; ++group) {
    taken.insert(taken.end(), group->begin(), group->end());
  }
  own.groups.erase(own.groups.begin(), end);
  return taken;
}

void BeginAsyncCopies() { copies.clear(); }

void EndAsyncCopies(const char* kernel) {
  for (size_t thread = 0; thread < copies.size(); ++thread) {
    const ThreadCopies& own = copies[thread];
    size_t left = own.open.size();
    for (const std::vector<AsyncCopy>& group : own.groups) left += group.size();
    CHECK_EQ(left, 0u) << kernel << ": thread " << thread << " has ended without waiting for "
                       << left << " asynchronous copies";
  }
}

}  // namespace pushpull::emulation
