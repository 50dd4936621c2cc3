// CountingHandler is a PsHandler that passes every call to another PsHandler and counts it.
#ifndef PUSHPULL_PS_SERVER_MONITORING_COUNTING_HANDLER_H_
#define PUSHPULL_PS_SERVER_MONITORING_COUNTING_HANDLER_H_

#include <memory>

#include "common/wire/ps_handler.h"
#include "ps_server/monitoring/request_counters.h"

namespace pushpull {

// Thread-safe. `inner` must outlive the handler. The counters may outlive the handler: pulls
// that are still being sent hold a reference to them.
//
// A push counts once, with the status code of its answer or of the chunk that was refused. The
// duration of a pull ends when the transport releases the snapshot, after it has handed the last
// byte to the socket.
class CountingHandler final : public PsHandler {
 public:
  CountingHandler(PsHandler* inner, std::shared_ptr<RequestCounters> counters);

  PUSHPULL_DECLARE_HANDLER_FUNCTIONS

 private:
  // Returns a callback that counts the answer to `request` and then calls `done`.
  template <typename Request, typename Reply>
  Done<Reply> Counted(PsMethod method, const Request& request, Done<Reply> done);

  PsHandler* const inner_;
  const std::shared_ptr<RequestCounters> counters_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_COUNTING_HANDLER_H_
