// Tested by tests/e2e/clone_kill_test.py.
#include "worker/train/clone_process.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
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

}  // namespace

absl::StatusOr<CheckedJob> CheckJob(const WorkerOptions& options, Clock* clock, StopSwitch* stop,
                                    const PsSession::WaitReporter& on_wait,
                                    const std::string& checked_input) {
  PP_ASSIGN_OR_RETURN(PsSession::ClientFactory clients, MakeClients(options));
  PsSession session(SessionOptions(options, 0), std::move(clients), clock, on_wait);
  stop->Add([&session] { session.Stop(); });
  const absl::Status connected = session.Connect(options.ps);
  stop->Clear();
  PP_RETURN_IF_ERROR(connected);
  PP_ASSIGN_OR_RETURN(const config::TrainEvalPipelineConfig config,
                      ConfigOfJob(session.job(), options, /*check_train_input=*/true));
  std::atomic<bool> is_stopped{false};
  const auto stopped = [&is_stopped] { return is_stopped.load(std::memory_order_relaxed); };
  stop->Add([&is_stopped] { is_stopped.store(true); });
  const absl::Cleanup forget_is_stopped = [stop] { stop->Clear(); };
  // Each step over many images asks `stopped` before each of them.
  ImageProgress opening("the opening of the training data, parts read", 0, clock, on_wait);
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<ImageSource> source,
                      OpenTrainInput(config, options.data_dir, [&] {
                        opening.Count();
                        return stopped();
                      }));
  LOG(INFO) << "training data: " << source->describe();
  ThreadPool pool(options.compute.threads * options.num_clones);
  const config::TrainConfig& train = config.train_config();
  const CheckedJob job = {
      .size = {source->size(), int64_t{train.batch_size()} * train.local_steps()},
      .input = absl::StrCat(NumClasses(config.model()), config.model().has_ssd() ? " boxes " : " ",
                            config.train_input_reader().DebugString())};
  if (options.image_cache.folder.empty()) {
    if (job.input == checked_input) return job;
    ImageProgress checking("the check of the images", source->size(), clock, on_wait);
    PP_RETURN_IF_ERROR(source->Check(&pool, [&] {
      checking.Count();
      return stopped();
    }));
    return job;
  }
  ImageCacheHooks hooks;
  hooks.on_wait = on_wait;
  hooks.stopped = stopped;
  PosixFileSystem files;
  PP_RETURN_IF_ERROR(PrepareImageCache(files, *source, options.image_cache, &pool, clock, hooks));
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
  std::atomic<bool> is_stopped{false};
  stop->Add([&is_stopped] { is_stopped.store(true); });
  const auto run = [&]() -> absl::Status {
    PP_RETURN_IF_ERROR(session.Connect(options.ps));
    PP_ASSIGN_OR_RETURN(const config::TrainEvalPipelineConfig config,
                        ConfigOfJob(session.job(), options, /*check_train_input=*/false));
    const VariableLayout layout = BuildVariableLayout(config);
    NetworkSourceOptions source_options;
    source_options.data_dir = options.data_dir;
    source_options.image_cache = options.image_cache;
    source_options.sync = session.job().sync();
    source_options.seed = session.job().seed();
    source_options.num_replicas = static_cast<int>(session_options.num_replicas);
    source_options.compute = options.compute;
    source_options.stopped = [&is_stopped] { return is_stopped.load(std::memory_order_relaxed); };
    // On a GPU the clone's CPU threads have nothing else to do than to prepare images.
    if (options.compute.device != nullptr) source_options.input_threads = options.compute.threads;
    PP_ASSIGN_OR_RETURN(const std::unique_ptr<NetworkGradientSource> source,
                        NetworkGradientSource::Create(config, &layout, source_options));
    GradientSource* trained = source.get();
    std::optional<ThreadPool> update_threads;
    std::optional<LocalStepsSource> local_steps;
    if (HasLocalSteps(config.train_config())) {
      update_threads.emplace(options.compute.threads);
      trained = &local_steps.emplace(source.get(), &layout, config.train_config(), &*update_threads,
                                     [&session] { return session.CheckWanted(); });
    }
    CloneTrainer trainer(&session, trained, &layout, clock, report,
                         {options.gradient_codec, InstrumentsOf(options, session_options)});
    stop->Add([&trainer] { trainer.Stop(); });
    const absl::Status status = trainer.Run();
    stop->Clear();
    return status;
  };
  const absl::Status status = run();
  stop->Clear();
  return status;
}

}  // namespace pushpull
