// Tested by tests/common/wire/grpc/steady_timers_test.cc.
#include "common/wire/grpc/grpc_runtime.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/health_check_service_interface.h>
#include <malloc.h>
#include <stdlib.h>

#include "absl/base/call_once.h"
#include "absl/synchronization/mutex.h"
#include "glog/logging.h"

#include "common/wire/grpc/patient_threads.h"
#include "common/wire/grpc/steady_timers.h"

namespace pushpull {
namespace {

// gRPC's messages are logged only with --v=1: what a program can act on reaches it as a status.
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
    // With these experiments, gRPC's socket reader reads to the end of the current frame, and the
    // kernel wakes it only when the frame is complete. A chunk then costs one wake-up instead of
    // one per piece. There are no channel arguments for them; gRPC reads the variable once, when it
    // starts. A value set by the user is kept.
    setenv("GRPC_EXPERIMENTS", "tcp_frame_size_tuning,tcp_rcv_lowat", /*overwrite=*/0);
    // Megabytes of receive buffers are allocated and freed in every step. By default glibc returns
    // such memory to the system at once, and faulting it in again costs more than the transfer.
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
#ifdef NDEBUG
    // Debian's Abseil checks for deadlock cycles at every lock, including gRPC's.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
    // There is no matching grpc_shutdown. Without this reference, gRPC would shut down with the
    // last channel or server and wait up to ten seconds for one of its threads that sleeps in
    // epoll.
    grpc_init();
    grpc::EnableDefaultHealthCheckService(true);
  });
}

}  // namespace pushpull
