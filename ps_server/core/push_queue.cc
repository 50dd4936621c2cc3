// Tested by tests/ps_server/core/coordinator_async_test.cc.
#include "ps_server/core/push_queue.h"

#include <algorithm>
#include <utility>

namespace pushpull {

bool PushQueue::Has(uint32_t replica) const {
  return std::any_of(pushes_.begin(), pushes_.end(), [replica](const Push& push) {
    return push.request.key().replica() == replica;
  });
}

void PushQueue::Add(CallId call, const ps::CommitRequest& request) {
  pushes_.push_back({{call}, request});
}

bool PushQueue::Join(CallId call, const ps::PushKey& key) {
  for (Push& push : pushes_) {
    const ps::PushKey& other = push.request.key();
    if (other.replica() == key.replica() && other.grant() == key.grant() &&
        other.step() == key.step()) {
      push.calls.push_back(call);
      return true;
    }
  }
  return false;
}

void PushQueue::Cancel(CallId call) {
  for (Push& push : pushes_) std::erase(push.calls, call);
}

std::vector<CallId> PushQueue::PopFront() {
  std::vector<CallId> calls = std::move(pushes_.front().calls);
  pushes_.pop_front();
  return calls;
}

std::vector<CallId> PushQueue::Remove(size_t first, absl::FunctionRef<bool(uint32_t)> of) {
  std::vector<CallId> calls;
  if (pushes_.size() <= first) return calls;
  const auto removed = [&](const Push& push) {
    if (!of(push.request.key().replica())) return false;
    calls.insert(calls.end(), push.calls.begin(), push.calls.end());
    return true;
  };
  pushes_.erase(
      std::remove_if(pushes_.begin() + static_cast<std::ptrdiff_t>(first), pushes_.end(), removed),
      pushes_.end());
  return calls;
}

std::vector<CallId> PushQueue::RemoveAll() {
  return Remove(0, [](uint32_t) { return true; });
}

}  // namespace pushpull
