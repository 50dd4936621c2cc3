// A PsClient that calls a PsHandler directly. Tests use it to run several processes of a job as
// threads of one process, and to inject faults at exact places.
#ifndef PUSHPULL_TESTS_TESTKIT_IN_PROCESS_PS_CLIENT_H_
#define PUSHPULL_TESTS_TESTKIT_IN_PROCESS_PS_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/wire/ps_client.h"
#include "common/wire/ps_handler.h"

namespace pushpull {

// The faults of one message. A call whose request or reply is dropped fails at once with
// UNAVAILABLE, as over a broken connection: the client cannot know what the server did.
struct CallFault {
  bool drop_request = false;  // the handler never sees it
  bool drop_reply = false;    // the handler sees it, but its answer is lost
  int duplicates = 0;    // how many more times the handler sees it; the last answer is returned
  absl::Duration delay;  // real time to sleep before the message is delivered or dropped
  bool damage = false;   // flip one bit of a pushed chunk, or of a pull's first chunk
};

// Describes one message. `method` is a unary call ("Commit"), a chunk of a push ("PushChunk"), the
// end of a push ("FinishPush"), or a pull ("Pull", where drop_reply breaks the stream after the
// first chunk).
struct MessageInfo {
  absl::string_view method;
  uint64_t sequence = 0;  // 0, 1, ... over all messages of this client
  uint32_t chunk = 0;     // PushChunk only
};

// Returns the faults of a message. It runs on the thread that makes the call, so it must be
// thread-safe if several threads use the client.
using FaultHook = std::function<CallFault(const MessageInfo&)>;

// The handler must outlive the client. A null hook means no faults.
std::unique_ptr<PsClient> MakeInProcessPsClient(PsHandler* handler, const std::string& address,
                                                FaultHook hook = nullptr);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_IN_PROCESS_PS_CLIENT_H_
