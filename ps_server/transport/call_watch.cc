#include "ps_server/transport/call_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace pushpull {

CallWatch::CallNumber CallWatch::Add(absl::Duration patience, std::function<void()> expire) {
  const absl::Duration now = clock_->Now();
  const absl::Duration last = now + limits_.longest_call;
  absl::MutexLock lock(&mutex_);
  calls_.emplace(++last_number_, Entry{std::min(now + patience, last), last, std::move(expire)});
  return last_number_;
}

void CallWatch::Extend(CallNumber call, absl::Duration patience) {
  const absl::Duration now = clock_->Now();
  absl::MutexLock lock(&mutex_);
  const auto it = calls_.find(call);
  if (it == calls_.end() || it->second.expire == nullptr) return;
  it->second.due = std::min(now + patience, it->second.last);
}

void CallWatch::Remove(CallNumber call) {
  absl::MutexLock lock(&mutex_);
  const auto not_running = [this, call]()
                               ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return expiring_ != call; };
  mutex_.Await(absl::Condition(&not_running));
  calls_.erase(call);
}

void CallWatch::Sweep() {
  const absl::Duration now = clock_->Now();
  std::vector<CallNumber> due;
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [call, entry] : calls_) {
      if (entry.due <= now) due.push_back(call);
    }
  }
  for (const CallNumber call : due) Expire(call, now);
}

void CallWatch::Expire(CallNumber call, absl::Duration now) {
  std::function<void()> expire;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = calls_.find(call);
    if (it == calls_.end() || it->second.due > now) return;
    it->second.due = absl::InfiniteDuration();
    expire = std::exchange(it->second.expire, nullptr);
    expiring_ = call;
  }
  expire();  // without the lock: it may end calls, which then call Extend or Remove
  absl::MutexLock lock(&mutex_);
  expiring_ = 0;
}

size_t CallWatch::size() const {
  absl::MutexLock lock(&mutex_);
  return calls_.size();
}

}  // namespace pushpull
