// The gRPC calls of one client that are under way, so that another thread can cancel all of them.
#ifndef PUSHPULL_COMMON_WIRE_GRPC_ACTIVE_CALLS_H_
#define PUSHPULL_COMMON_WIRE_GRPC_ACTIVE_CALLS_H_

#include <grpcpp/client_context.h>

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace pushpull {

// Thread-safe.
class ActiveCalls {
 public:
  // A call belongs to the set as long as its Entry exists. The context must outlive the Entry, and
  // the set must outlive all of its entries.
  class Entry {
   public:
    Entry(ActiveCalls* calls, grpc::ClientContext* context);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    ActiveCalls* const calls_;
    grpc::ClientContext* const context_;
  };

  // Cancels the calls of the set, and every call that is added later. Never blocks.
  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRPC_ACTIVE_CALLS_H_
