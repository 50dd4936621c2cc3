// TaskHandler answers every request to one ps task. It passes requests about the shard to the
// ShardRuntime, and requests about the job to the CoordinatorRuntime, which only task 0 has.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_TASK_HANDLER_H_
#define PUSHPULL_PS_SERVER_RUNTIME_TASK_HANDLER_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

#include "common/wire/ps_handler.h"
#include "ps_server/runtime/coordinator_runtime.h"
#include "ps_server/runtime/job_spec.h"
#include "ps_server/runtime/shard_runtime.h"

namespace pushpull {

// Thread-safe. `job`, `shard` and `coordinator` must outlive the handler.
class TaskHandler final : public PsHandler {
 public:
  // From whom the shard takes orders (Restore, MeasureNorm, Apply, Snapshot). With
  // kFromThisProcess the coordinator calls the ShardRuntime directly, and orders from the
  // network are refused with PERMISSION_DENIED.
  enum class Orders { kFromPeers, kFromThisProcess };
  // Called when the coordinator in another process has told this task to end. Must not block.
  using EndFn = std::function<void(const ps::EndTaskRequest&)>;

  // run_id: 16 bytes. coordinator: null in every task but task 0; requests about the job then fail
  // with FAILED_PRECONDITION. end: null in the coordinator's process.
  TaskHandler(const JobSpec* job, std::string run_id, ShardRuntime* shard,
              CoordinatorRuntime* coordinator, Orders orders, EndFn end);

  // Sets the addresses of all tasks, which GetJob returns. GetJob fails with NOT_READY before
  // this call.
  void SetAddresses(std::vector<std::string> addresses);

  // The functions of the unary methods. Each checks whether this task answers the method and then
  // calls a private function, such as DoEvict for Evict.
#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof)             \
  void Name(const ps::Request& request, Done<ps::Reply> done) override {     \
    if (MethodTask::task == MethodTask::kFirst && coordinator_ == nullptr) { \
      return done(NotCoordinator());                                         \
    }                                                                        \
    Do##Name(request, std::move(done));                                      \
  }
  PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW

  absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload) override;
  CancelFn FinishPush(const ps::PushChunk& last, Done<ps::PushReply> done) override;
  CancelFn Pull(const ps::PullRequest& request, Done<PullSnapshot> done) override;
  void OpenSharedMemory(const ps::OpenSharedMemoryRequest& request,
                        Done<ps::OpenSharedMemoryReply> done) override;

 private:
#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof) \
  void Do##Name(const ps::Request& request, Done<ps::Reply> done);
  PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW
  static absl::Status NotCoordinator();

  const JobSpec* const job_;
  const std::string run_id_;
  ShardRuntime* const shard_;
  CoordinatorRuntime* const coordinator_;
  const Orders orders_;
  const EndFn end_;
  absl::Mutex mutex_;
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_TASK_HANDLER_H_
