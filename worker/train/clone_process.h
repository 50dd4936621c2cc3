// What one clone process does from start to end, and what the supervisor checks once for all of
// them.
#ifndef PUSHPULL_WORKER_TRAIN_CLONE_PROCESS_H_
#define PUSHPULL_WORKER_TRAIN_CLONE_PROCESS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/trace/clock_offset.h"
#include "common/trace/trace_writer.h"
#include "common/transport_security.h"
#include "worker/data/image_cache.h"
#include "worker/model/compute.h"
#include "worker/train/clone_identity.h"
#include "worker/train/clone_trainer.h"
#include "worker/train/gpu_probe.h"
#include "worker/train/ps_session.h"

namespace pushpull {

struct WorkerOptions {
  std::vector<std::string> ps;  // addresses of the ps tasks; one stands for all
  int num_clones = 1;
  int num_workers = 1;
  int worker_index = 0;
  ComputeOptions compute = {};  // of one clone
  ps::GradientEncoding gradient_encoding = ps::FLOAT32;
  bool shared_memory = true;  // with ps tasks on this machine
  std::string data_dir;
  ImageCacheOptions image_cache;
  absl::Duration peer_deadline = absl::Minutes(5);
  TransportSecurity security = {};
  // What the supervisor has handed to this clone process.
  CloneIdentity identity = {};
  // Used by a clone process; each may be null, and must outlive it.
  GpuProbe* gpu = nullptr;
  TraceWriter* trace = nullptr;
  ClockOffset* server_clock = nullptr;
};

// Lets another thread stop what runs.
class StopSwitch {
 public:
  // Calls all functions added before and, at once, those added later.
  void Stop();
  void Add(std::function<void()> stop);
  // Forgets the functions: what they stop is about to go.
  void Clear();

 private:
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> functions_ ABSL_GUARDED_BY(mutex_);
};

// Waits for the server, takes its config, checks it for this number of clones, and checks the
// training data; with a folder for an image cache, prepares that. Returns the config's problems
// (INVALID_ARGUMENT, all of them), the data set's, or the peer's silence.
absl::Status CheckJob(const WorkerOptions& options, Clock* clock, StopSwitch* stop,
                      const PsSession::WaitReporter& on_wait);

// Trains as clone `clone` until the job ends; see CloneTrainer::Run.
absl::Status RunClone(const WorkerOptions& options, int clone, Clock* clock, StopSwitch* stop,
                      const CloneTrainer::ReportFn& report);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_CLONE_PROCESS_H_
