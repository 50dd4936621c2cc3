// Keeps asking ps task 0 for its time, so that the trace of another task has the same clock.
#ifndef PUSHPULL_PS_SERVER_SERVICE_CLOCK_FOLLOWER_H_
#define PUSHPULL_PS_SERVER_SERVICE_CLOCK_FOLLOWER_H_

#include <memory>
#include <thread>

#include "common/clock.h"
#include "common/monotonic_wait.h"
#include "common/ps_client.h"
#include "common/trace/clock_offset.h"

namespace pushpull {

class ClockFollower {
 public:
  // Asks a few times at once (blocks for seconds where task 0 does not answer), then once a second
  // on a thread of its own until destruction. clock and offset must outlive the object.
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

#endif  // PUSHPULL_PS_SERVER_SERVICE_CLOCK_FOLLOWER_H_
