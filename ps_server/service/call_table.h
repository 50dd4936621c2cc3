// Calls whose answers come later, by number.
#ifndef PUSHPULL_PS_SERVER_SERVICE_CALL_TABLE_H_
#define PUSHPULL_PS_SERVER_SERVICE_CALL_TABLE_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "ps_server/core/shard_events.h"

namespace pushpull {

// Not thread-safe.
template <typename Reply>
class CallTable {
 public:
  using Done = std::function<void(absl::StatusOr<Reply>)>;

  void Add(CallId call, Done done) { calls_.emplace(call, std::move(done)); }

  // Takes the callback out; an empty function if the call was answered or cancelled before.
  Done Take(CallId call) {
    const auto it = calls_.find(call);
    if (it == calls_.end()) return nullptr;
    Done done = std::move(it->second);
    calls_.erase(it);
    return done;
  }

 private:
  absl::flat_hash_map<CallId, Done> calls_;
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
