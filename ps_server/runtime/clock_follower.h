// ClockFollower asks ps task 0 for its time again and again, so that the trace of another ps
// task can use the clock of task 0.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_CLOCK_FOLLOWER_H_
#define PUSHPULL_PS_SERVER_RUNTIME_CLOCK_FOLLOWER_H_

#include <memory>
#include <thread>

#include "common/base/clock.h"
#include "common/base/monotonic_wait.h"
#include "common/trace/clock_offset.h"
#include "common/wire/ps_client.h"

namespace pushpull {

// One thread creates and destroys the object.
class ClockFollower {
 public:
  // The constructor asks five times; each attempt blocks for at most one second. A background
  // thread then asks once a second until the object is destroyed. `clock` and `offset` must
  // outlive the object.
  ClockFollower(std::unique_ptr<PsClient> coordinator, const Clock* clock, ClockOffset* offset);
  ~ClockFollower();
  ClockFollower(const ClockFollower&) = delete;
  ClockFollower& operator=(const ClockFollower&) = delete;

 private:
  void Ask();
  void RunThread();

  const std::unique_ptr<PsClient> coordinator_;
  const Clock* const clock_;
  ClockOffset* const offset_;
  StopFlag stop_;
  std::thread thread_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_CLOCK_FOLLOWER_H_
