// NotReadyHandler answers every call with NOT_READY, for a task that listens before it can serve.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_NOT_READY_HANDLER_H_
#define PUSHPULL_PS_SERVER_RUNTIME_NOT_READY_HANDLER_H_

#include <string>
#include <utility>

#include "common/wire/ps_handler.h"

namespace pushpull {

// Thread-safe.
class NotReadyHandler : public PsHandler {
 public:
  // reason: what the server waits for, a part of a sentence for people.
  explicit NotReadyHandler(std::string reason) : reason_(std::move(reason)) {}

  PUSHPULL_DECLARE_HANDLER_FUNCTIONS

 protected:
  absl::Status NotReady() const;

 private:
  const std::string reason_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_NOT_READY_HANDLER_H_
