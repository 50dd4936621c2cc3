// CallTable keeps the callbacks of calls that are answered later, by call number.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_CALL_TABLE_H_
#define PUSHPULL_PS_SERVER_RUNTIME_CALL_TABLE_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "ps_server/core/shard_events.h"

namespace pushpull {

// Not thread-safe.
template <typename Reply>
class CallTable {
 public:
  using Done = std::function<void(absl::StatusOr<Reply>)>;

  // `deadline` is a time of the clock whose Now() the caller passes to TakeDue.
  void Add(CallId call, Done done, absl::Duration deadline = absl::InfiniteDuration()) {
    calls_.emplace(call, Entry{std::move(done), deadline});
  }

  // Removes the call and returns its callback, or an empty function if the call is not in the
  // table: it was answered, cancelled or timed out.
  Done Take(CallId call) {
    const auto it = calls_.find(call);
    if (it == calls_.end()) return nullptr;
    Done done = std::move(it->second.done);
    calls_.erase(it);
    return done;
  }

  bool empty() const { return calls_.empty(); }

  // Removes and returns the calls whose deadline is at or before `now`.
  std::vector<std::pair<CallId, Done>> TakeDue(absl::Duration now) {
    std::vector<std::pair<CallId, Done>> due;
    for (const auto& [call, entry] : calls_) {
      if (entry.deadline <= now) due.emplace_back(call, entry.done);
    }
    for (const auto& [call, done] : due) calls_.erase(call);
    return due;
  }

 private:
  struct Entry {
    Done done;
    absl::Duration deadline;
  };
  absl::flat_hash_map<CallId, Entry> calls_;
};

// Callbacks that are collected while a lock is held and run after it is released.
using Answers = std::vector<std::function<void()>>;

// Removes `call` from the table and adds its answer to `answers`. Does nothing if the call is
// not in the table any more.
template <typename Reply>
void Answer(CallTable<Reply>* table, CallId call, absl::StatusOr<Reply> reply, Answers* answers) {
  auto done = table->Take(call);
  if (!done) return;
  answers->push_back(
      [done = std::move(done), reply = std::move(reply)] { done(std::move(reply)); });
}

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_CALL_TABLE_H_
