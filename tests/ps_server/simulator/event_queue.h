// The virtual clock of the simulator. EventQueue runs closures in the order of their due times, and
// closures that are due at the same time in the order of insertion. Running a closure moves the
// clock to its due time; the closure itself takes no virtual time. Not thread-safe.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_EVENT_QUEUE_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_EVENT_QUEUE_H_

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace pushpull::sim {

class EventQueue {
 public:
  // The virtual time since the start of the simulation.
  absl::Duration now() const { return now_; }
  bool empty() const { return queue_.empty(); }

  // Schedules `run` for the time `when`, or for now if `when` has passed.
  void At(absl::Duration when, std::function<void()> run) {
    queue_.push({std::max(when, now_), ++inserted_, std::move(run)});
  }
  void After(absl::Duration delay, std::function<void()> run) { At(now_ + delay, std::move(run)); }

  // Runs the next closure. The queue must not be empty.
  void RunOne() {
    Event event = std::move(const_cast<Event&>(queue_.top()));
    queue_.pop();
    now_ = event.when;
    event.run();
  }

 private:
  struct Event {
    absl::Duration when;
    uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return std::pair(when, order) > std::pair(other.when, other.order);
    }
  };
  absl::Duration now_ = absl::ZeroDuration();
  uint64_t inserted_ = 0;
  std::priority_queue<Event> queue_;
};

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_EVENT_QUEUE_H_
