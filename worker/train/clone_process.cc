// Tested by tests/e2e/clone_kill_test.py.
#include "worker/train/clone_process.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/file_system.h"
#include "common/base/status_macros.h"
#include "common/config/validate_config.h"
#include "common/model/model_layout.h"
#include "common/trace/trace_parts.h"
#include "worker/client/grpc_clients.h"
#include "worker/client/local_steps_source.h"
#include "worker/data/image_progress.h"
#include "worker/train/network_gradient_source.h"

namespace pushpull {
namespace {

PsSession::Options SessionOptions(const WorkerOptions& options, int clone) {
  PsSession::Options session = options.session;
  session.worker_id = options.worker_index * options.num_clones + clone;
  session.num_replicas = options.num_clones * options.num_workers;
  session.peer_name = ClonePeerName(clone);
  session.security = options.security;
  session.jitter_seed = static_cast<uint64_t>(getpid());
  return session;
}

absl::StatusOr<PsSession::ClientFactory> MakeClients(const WorkerOptions& options) {
  const uint32_t first = options.worker_index * options.num_clones;
  return MakeGrpcClients(options.security, options.shared_memory,
                         {first, first + options.num_clones - 1});
}

CloneInstruments InstrumentsOf(const WorkerOptions& options, const PsSession::Options& session) {
  CloneInstruments instruments;
  if (options.gpu != nullptr) {
    instruments.gpu = [gpu = options.gpu] { return gpu->Read(); };
  }
  if (options.trace == nullptr) return instruments;
  const int process = TraceProcessOfClone(session.worker_id);
  const std::string name = absl::StrCat("clone ", session.worker_id, " (", session.peer_name, ")");
  instruments.phases = options.trace->Row(process, name, 1, "training");
  instruments.sending = options.trace->Row(process, name, 2, "sending");
  return instruments;
}

// The server has validated its config, but it does not know this worker's clones, and it may be of
// another version. Once the job has a number of replicas, the batch is divided over those: clones
// beyond them are spares, whatever this worker's flags say. Only the process that looks for the
// training data logs the warnings.
absl::StatusOr<config::TrainEvalPipelineConfig> ConfigOfJob(const ps::JobReply& job,
                                                            const WorkerOptions& options,
                                                            bool check_train_input) {
  ConfigContext context;
  context.sync = job.sync();
  const bool is_divided = job.sync() && job.num_replicas() > 0;
  context.num_clones = is_divided ? job.num_replicas() : options.num_clones;
  context.num_workers = is_divided ? 1 : options.num_workers;
  context.data_dir = options.data_dir;
  context.check_train_input = context.log_warnings = check_train_input;
  return ParseValidConfig(job.pipeline_config(), context, "the server's pipeline config");
}

// Becomes true when the switch stops. The destructor removes all functions from the switch.
class SwitchFlag {
 public:
  explicit SwitchFlag(StopSwitch* stop) : stop_(*stop) {
    stop_.Add([this] { value_.store(true); });
  }
  ~SwitchFlag() { stop_.Clear(); }
  SwitchFlag(const SwitchFlag&) = delete;
  SwitchFlag& operator=(const SwitchFlag&) = delete;

  bool value() const { return value_.load(std::memory_order_relaxed); }

 private:
  StopSwitch& stop_;
  std::atomic<bool> value_{false};
};

// Waits for the server, and returns its config after checking it and looking for the training data.
absl::StatusOr<config::TrainEvalPipelineConfig> FetchConfig(
    const WorkerOptions& options, Clock* clock, StopSwitch* stop,
    const PsSession::WaitReporter& on_wait) {
  PP_ASSIGN_OR_RETURN(PsSession::ClientFactory clients, MakeClients(options));
  PsSession session(SessionOptions(options, 0), std::move(clients), clock, on_wait);
  stop->Add([&session] { session.Stop(); });
  const absl::Status connected = session.Connect(options.ps);
  stop->Clear();
  PP_RETURN_IF_ERROR(connected);
  return ConfigOfJob(session.job(), options, /*check_train_input=*/true);
}

// Prepares the image cache if there is a folder for it, and otherwise reads every image, unless
// `is_checked`.
absl::Status CheckImages(const WorkerOptions& options, const ImageSource& source, bool is_checked,
                         Clock* clock, const SwitchFlag& stopped,
                         const PsSession::WaitReporter& on_wait) {
  ThreadPool pool(options.compute.threads * options.num_clones);
  if (!options.image_cache.folder.empty()) {
    ImageCacheHooks hooks;
    hooks.on_wait = on_wait;
    hooks.stopped = [&stopped] { return stopped.value(); };
    PosixFileSystem files;
    return PrepareImageCache(files, source, options.image_cache, &pool, clock, hooks);
  }
  if (is_checked) return absl::OkStatus();
  ImageProgress checking("the check of the images", source.size(), clock, on_wait);
  return source.Check(&pool, [&] {
    checking.Count();
    return stopped.value();
  });
}

NetworkSourceOptions SourceOptionsOf(const WorkerOptions& options,
                                     const PsSession::Options& session_options,
                                     const ps::JobReply& job, const SwitchFlag& stopped) {
  NetworkSourceOptions source;
  source.data_dir = options.data_dir;
  source.image_cache = options.image_cache;
  source.sync = job.sync();
  source.seed = job.seed();
  source.num_replicas = static_cast<int>(session_options.num_replicas);
  source.compute = options.compute;
  source.stopped = [&stopped] { return stopped.value(); };
  // On a GPU the clone's CPU threads have nothing else to do than to prepare images.
  if (options.compute.device != nullptr) source.input_threads = options.compute.threads;
  return source;
}

// Fetches the job and trains until it ends. `stopped` is a flag of `stop`.
absl::Status ConnectAndTrain(const WorkerOptions& options,
                             const PsSession::Options& session_options, PsSession* session,
                             Clock* clock, StopSwitch* stop, const SwitchFlag& stopped,
                             const CloneTrainer::ReportFn& report) {
  PP_RETURN_IF_ERROR(session->Connect(options.ps));
  PP_ASSIGN_OR_RETURN(const config::TrainEvalPipelineConfig config,
                      ConfigOfJob(session->job(), options, /*check_train_input=*/false));
  const VariableLayout layout = BuildVariableLayout(config);
  PP_ASSIGN_OR_RETURN(
      const std::unique_ptr<NetworkGradientSource> source,
      NetworkGradientSource::Create(
          config, &layout, SourceOptionsOf(options, session_options, session->job(), stopped)));
  GradientSource* trained = source.get();
  std::optional<ThreadPool> update_threads;
  std::optional<LocalStepsSource> local_steps;
  if (HasLocalSteps(config.train_config())) {
    update_threads.emplace(options.compute.threads);
    trained = &local_steps.emplace(source.get(), &layout, config.train_config(), &*update_threads,
                                   [session] { return session->CheckWanted(); });
  }
  CloneTrainer trainer(session, trained, &layout, clock, report,
                       {options.gradient_codec, InstrumentsOf(options, session_options)});
  stop->Add([&trainer] { trainer.Stop(); });
  const absl::Status status = trainer.Run();
  stop->Clear();
  return status;
}

}  // namespace

absl::StatusOr<CheckedJob> CheckJob(const WorkerOptions& options, Clock* clock, StopSwitch* stop,
                                    const PsSession::WaitReporter& on_wait,
                                    const std::string& checked_input) {
  PP_ASSIGN_OR_RETURN(const config::TrainEvalPipelineConfig config,
                      FetchConfig(options, clock, stop, on_wait));
  const SwitchFlag stopped(stop);
  // Each step over many images asks whether it is stopped before each of them.
  ImageProgress opening("the opening of the training data, parts read", 0, clock, on_wait);
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<ImageSource> source,
                      OpenTrainInput(config, options.data_dir, [&] {
                        opening.Count();
                        return stopped.value();
                      }));
  LOG(INFO) << "training data: " << source->describe();
  const config::TrainConfig& train = config.train_config();
  CheckedJob job = {
      .size = {source->size(), int64_t{train.batch_size()} * train.local_steps()},
      .input = absl::StrCat(NumClasses(config.model()), config.model().has_ssd() ? " boxes " : " ",
                            config.train_input_reader().DebugString())};
  PP_RETURN_IF_ERROR(
      CheckImages(options, *source, job.input == checked_input, clock, stopped, on_wait));
  return job;
}

absl::Status RunClone(const WorkerOptions& options, int clone, Clock* clock, StopSwitch* stop,
                      const CloneTrainer::ReportFn& report) {
  const auto on_wait = [&report](const std::string& text) {
    CloneReport waiting;
    waiting.waiting_for = text;
    report(waiting);
  };
  const PsSession::Options session_options = SessionOptions(options, clone);
  PP_ASSIGN_OR_RETURN(PsSession::ClientFactory clients, MakeClients(options));
  PsSession session(session_options, std::move(clients), clock, on_wait);
  stop->Add([&session] { session.Stop(); });
  const SwitchFlag stopped(stop);
  return ConnectAndTrain(options, session_options, &session, clock, stop, stopped, report);
}

}  // namespace pushpull
