// The table of the ParameterServer's methods: one row per RPC. The client, the server, the
// in-process transport, the access check and the counters are made from it, so a new RPC needs its
// definition in protos/parameter_server.proto, a row here, and a function of TaskHandler.
//
// The columns of a row:
//
//   name      of the method, as in the proto
//   request, reply   message types without "ps::"
//   callers   the roles that may call the method over TLS (role_set.h)
//   task      kEvery, or kFirst: only task 0 answers, which has the coordinator; others
//             fail with FAILED_PRECONDITION
//   proof     without TLS, whether the caller has to prove that it belongs to the job
//             (peer_secret.h): kNone; kOffered: a caller with a proof gets one with the answer;
//             kRequired
//
// A user of the table defines a macro for one row, passes it to the table, and undefines it.
#ifndef PUSHPULL_COMMON_WIRE_METHODS_H_
#define PUSHPULL_COMMON_WIRE_METHODS_H_

#include <cstdint>
#include <iterator>

#include "absl/strings/string_view.h"

#include "common/wire/role_set.h"

// clang-format off
// Methods with one request and one reply, which the transports pass to the handler as they are.
#define PUSHPULL_UNARY_METHODS(ROW)                                                              \
  /* What is trained and how it goes. The other ps tasks call GetJob too. */                     \
  ROW(GetJob,        JobRequest,        JobReply,        kAllRoles,         kFirst, kNone)       \
  ROW(GetStatus,     StatusRequest,     StatusReply,     kAllRoles,         kFirst, kNone)       \
  /* For clones. The worker_id in the message has to be the caller's (caller_rule.h). */         \
  ROW(DeclareVariables, DeclareRequest, DeclareReply,    kWorkers,          kFirst, kNone)       \
  ROW(Register,      RegisterRequest,   RegisterReply,   kWorkers,          kFirst, kNone)       \
  ROW(Heartbeat,     HeartbeatRequest,  HeartbeatReply,  kWorkers,          kFirst, kNone)       \
  ROW(Commit,        CommitRequest,     CommitReply,     kWorkers,          kFirst, kNone)       \
  /* For administrators. A ps task that receives SIGTERM calls Drain to end the whole job. */         \
  ROW(Checkpoint,    CheckpointRequest, CheckpointReply, kAdmins,           kFirst, kNone)       \
  ROW(Drain,         DrainRequest,      DrainReply,      kTasksAndAdmins,   kFirst, kNone)       \
  ROW(Evict,         EvictRequest,      EvictReply,      kAdmins,           kFirst, kNone)       \
  ROW(Scale,         ScaleRequest,      ScaleReply,      kAdmins,           kFirst, kNone)       \
  /* From the coordinator to the shards. --check_cluster calls GetShardState too. */             \
  ROW(GetShardState, ShardStateRequest, ShardStateReply, kAllButEvaluators, kEvery, kOffered)    \
  ROW(Restore,       RestoreRequest,    RestoreReply,    kTasks,            kEvery, kRequired)   \
  ROW(MeasureNorm,   ApplyRequest,      NormReply,       kTasks,            kEvery, kRequired)   \
  ROW(Apply,         ApplyRequest,      ApplyReply,      kTasks,            kEvery, kRequired)   \
  ROW(Snapshot,      SnapshotRequest,   SnapshotReply,   kTasks,            kEvery, kRequired)   \
  ROW(EndTask,       EndTaskRequest,    EndTaskReply,    kTasks,            kEvery, kRequired)

// Methods that move chunks, or the memory that chunks lie in. The transports and PsHandler
// have separate code for each of them.
#define PUSHPULL_CHUNK_METHODS(ROW)                                                              \
  ROW(Push,             PushChunk,               PushReply,             kWorkers, kEvery, kNone) \
  ROW(Pull,             PullRequest,             PullChunk,             kWorkers, kEvery, kNone) \
  ROW(OpenSharedMemory, OpenSharedMemoryRequest, OpenSharedMemoryReply, kWorkers, kEvery, kNone)
// clang-format on

#define PUSHPULL_ALL_METHODS(ROW) PUSHPULL_UNARY_METHODS(ROW) PUSHPULL_CHUNK_METHODS(ROW)

namespace pushpull {

enum class MethodTask : uint8_t { kEvery, kFirst };
enum class PeerProof : uint8_t { kNone, kOffered, kRequired };

// kGetJob, kGetStatus, ...: the rows of the table, in its order.
enum class PsMethod : uint8_t {
#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof) k##Name,
  PUSHPULL_ALL_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW
};

struct PsMethodRow {
  PsMethod method;
  const char* name;  // "GetJob"
  const char* path;  // "/ps.ParameterServer/GetJob", the value of HTTP/2's :path
  RoleSet callers;
  MethodTask task;
  PeerProof proof;
};

inline constexpr PsMethodRow kPsMethods[] = {
#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof)              \
  {PsMethod::k##Name, #Name,           "/ps.ParameterServer/" #Name, callers, \
   MethodTask::task,  PeerProof::proof},
    PUSHPULL_ALL_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW
};
inline constexpr int kNumPsMethods = std::size(kPsMethods);

constexpr const PsMethodRow& RowOf(PsMethod method) { return kPsMethods[static_cast<int>(method)]; }

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_METHODS_H_
