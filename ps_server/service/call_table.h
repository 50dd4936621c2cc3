// Calls whose answers come later, by number.
#ifndef PUSHPULL_PS_SERVER_SERVICE_CALL_TABLE_H_
#define PUSHPULL_PS_SERVER_SERVICE_CALL_TABLE_H_

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

  // deadline: when TakeDue gives the call back, in the caller's steady time.
  void Add(CallId call, Done done, absl::Duration deadline = absl::InfiniteDuration()) {
    calls_.emplace(call, Entry{std::move(done), deadline});
  }

  // Takes the callback out; an empty function if the call was answered or cancelled before.
  Done Take(CallId call) {
    const auto it = calls_.find(call);
    if (it == calls_.end()) return nullptr;
    Done done = std::move(it->second.done);
    calls_.erase(it);
    return done;
  }

  // Takes out the calls whose deadline has come.
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

// Answers found under a lock, to be given outside it.
using Answers = std::vector<std::function<void()>>;

// Adds the answer of one call; nothing if the call was answered or cancelled before.
template <typename Reply>
void Answer(CallTable<Reply>* table, CallId call, absl::StatusOr<Reply> reply, Answers* answers) {
  auto done = table->Take(call);
  if (!done) return;
  answers->push_back(
      [done = std::move(done), reply = std::move(reply)] { done(std::move(reply)); });
}

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_CALL_TABLE_H_
