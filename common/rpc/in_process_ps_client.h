// A PsClient that calls a PsHandler directly, so that what several processes do is tested in one,
// with faults placed exactly where a test wants them.
#ifndef PUSHPULL_COMMON_RPC_IN_PROCESS_PS_CLIENT_H_
#define PUSHPULL_COMMON_RPC_IN_PROCESS_PS_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/ps_client.h"
#include "common/ps_handler.h"

namespace pushpull {

// What happens to one message. Calls with a dropped request or reply fail at once with UNAVAILABLE,
// as over a broken connection: nothing is known about what the server did.
struct CallFault {
  bool drop_request = false;  // the handler never sees it
  bool drop_reply = false;    // the handler sees it, its answer is lost
  int duplicates = 0;         // the handler sees it so many times more; the last answer counts
  absl::Duration delay;       // before it is handed over, in real time
  bool damage = false;        // one bit of a pushed chunk, or of a pull's first chunk, flips
};

// One message: a unary call ("Commit"), a chunk of a push ("PushChunk"), the end of a push
// ("FinishPush"), or a pull ("Pull", where drop_reply loses the stream after its first chunk).
struct MessageInfo {
  absl::string_view method;
  uint64_t sequence = 0;  // 0, 1, ... over all messages of this client
  uint32_t chunk = 0;     // PushChunk only
};

// Called from the calling thread; must be thread-safe when the client is used from several.
using FaultHook = std::function<CallFault(const MessageInfo&)>;

// The handler must outlive the client. A null hook means no faults.
std::unique_ptr<PsClient> MakeInProcessPsClient(PsHandler* handler, const std::string& address,
                                                FaultHook hook = nullptr);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_IN_PROCESS_PS_CLIENT_H_
