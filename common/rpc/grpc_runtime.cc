#include "common/rpc/grpc_runtime.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <malloc.h>
#include <stdlib.h>

#include "absl/base/call_once.h"
#include "absl/synchronization/mutex.h"
#include "glog/logging.h"

#include "common/rpc/patient_threads.h"
#include "common/rpc/steady_timers.h"

namespace pushpull {
namespace {

// All that a program can act on reaches it as a status.
void LogQuietly(gpr_log_func_args* args) {
  VLOG(1) << "gRPC: " << args->file << ":" << args->line << " " << args->message;
}

}  // namespace

void InitGrpcRuntime() {
  static absl::once_flag once;
  absl::call_once(once, [] {
    UseSteadyTimers();
    UsePatientThreads();
    gpr_set_log_function(LogQuietly);
    // A read ends with the frame that has begun, and the kernel wakes the reader only for it: a
    // chunk costs one wake-up, not one per piece. There is no channel argument for these two; gRPC
    // reads them once, when it starts. What the user has set stays.
    setenv("GRPC_EXPERIMENTS", "tcp_frame_size_tuning,tcp_rcv_lowat", /*overwrite=*/0);
    // Receive buffers are taken and returned by the megabyte in every step. By default glibc gives
    // such memory back to the system at once, and touching it anew costs more than the transfer
    // itself.
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
#ifdef NDEBUG
    // Debian's Abseil looks for cycles at every lock, gRPC's too.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
    // Never balanced by a shutdown: when the last channel or server goes, gRPC would wait up to ten
    // seconds for a thread of its own that sleeps in epoll.
    grpc_init();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::channelz::experimental::InitChannelzService();
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

}  // namespace pushpull
