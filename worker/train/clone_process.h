// The work of one clone process from start to end (RunClone), and the checks that the supervisor
// makes once for all clones before it starts them (CheckJob).
#ifndef PUSHPULL_WORKER_TRAIN_CLONE_PROCESS_H_
#define PUSHPULL_WORKER_TRAIN_CLONE_PROCESS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/clock.h"
#include "common/trace/trace_writer.h"
#include "common/wire/gradient_codec.h"
#include "common/wire/transport_security.h"
#include "worker/client/clone_trainer.h"
#include "worker/client/ps_session.h"
#include "worker/data/image_cache.h"
#include "worker/model/compute.h"
#include "worker/train/gpu_probe.h"
#include "worker/train/stop_switch.h"
#include "worker/train/worker_progress.h"

namespace pushpull {

struct WorkerOptions {
  std::vector<std::string> ps;  // addresses of all ps tasks in order, or only that of task 0
  int num_clones = 1;           // of this worker
  int num_workers = 1;
  int worker_index = 0;
  ComputeOptions compute = {};  // of one clone
  // What the sessions of all clones have in common. Each session gets `security` and its own ids.
  PsSession::Options session = {};
  TransportSecurity security = {};
  const GradientCodec* gradient_codec = &Float32Codec();
  bool shared_memory = true;  // use it with ps tasks on this machine
  std::string data_dir;       // prefix of relative input paths in the pipeline config
  ImageCacheOptions image_cache;
  // The rest is used by RunClone only. The pointers may be null; else the objects must outlive the
  // call.
  GpuProbe* gpu = nullptr;
  TraceWriter* trace = nullptr;
};

struct CheckedJob {
  TrainingSize size;
  std::string input;  // the part of the config that decides on the images
};

// Checks the job before any clone starts. Waits for the server, fetches its config, checks the
// config for this number of clones, and checks the training data; if there is a folder for an image
// cache, prepares the cache instead. Blocks until done or stopped; `on_wait` is told what it waits
// for. checked_input: CheckedJob::input of an earlier call, whose images are not checked again; or
// empty.
// INVALID_ARGUMENT: problems of the config; the message lists all of them.
// DEADLINE_EXCEEDED: the server stayed silent for the peer deadline.
// CANCELLED: stopped by `stop`.
// Errors of the data set and of the image cache.
absl::StatusOr<CheckedJob> CheckJob(const WorkerOptions& options, Clock* clock, StopSwitch* stop,
                                    const PsSession::WaitReporter& on_wait,
                                    const std::string& checked_input);

// Trains as clone `clone` of this worker until the job ends. Blocks as long. `report` is called
// from the calling thread. CANCELLED: stopped by `stop`, which also ends the opening of the
// training data. Other errors as CloneTrainer::Run, of the connection, the config and the data set.
absl::Status RunClone(const WorkerOptions& options, int clone, Clock* clock, StopSwitch* stop,
                      const CloneTrainer::ReportFn& report);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_CLONE_PROCESS_H_
