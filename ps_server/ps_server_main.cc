// ps_server holds the variables, aggregates pushes and publishes checkpoints.
// Tested by tests/e2e/training_test.py.
// Tested by tests/e2e/bad_input_test.py.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "glog/logging.h"

#include "common/base/num_cores.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/train_dir.h"
#include "common/checkpoint/train_dir_lock.h"
#include "common/cli/exit_codes.h"
#include "common/cli/flag_checks.h"
#include "common/cli/main_support.h"
#include "common/cli/print_result.h"
#include "common/cli/process_environment.h"
#include "common/cli/progress_line.h"
#include "common/cli/security_flags.h"
#include "common/cli/stop_signal.h"
#include "common/cluster/cluster_check.h"
#include "common/cluster/resolve_cluster.h"
#include "common/config/validate_config.h"
#include "common/trace/clock_offset.h"
#include "common/trace/trace_writer.h"
#include "common/wire/default_lease.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "common/wire/security/transport_credentials.h"
#include "ps_server/monitoring/http_server.h"
#include "ps_server/monitoring/monitoring_server.h"
#include "ps_server/runtime/server.h"
#include "ps_server/runtime/task_agreement.h"
#include "ps_server/store/state_folder.h"
#include "ps_server/transport/health_server.h"

ABSL_FLAG(int, tasks, 0,
          "Number of parameter-server tasks (shards) of the job; default: from TF_CONFIG or Slurm, "
          "else 1");
ABSL_FLAG(int, ps_tasks, 0, "Another name of --tasks, as TensorFlow's training programs have it");
ABSL_FLAG(int, task_index, -1,
          "Serve only this task, counted from 0, with --cluster; default: from TF_CONFIG or Slurm, "
          "else all tasks in this process, at consecutive ports");
ABSL_FLAG(
    std::vector<std::string>, cluster, {},
    "Addresses of all ps tasks in order, host:port (with --task_index); default: from TF_CONFIG "
    "or Slurm");
ABSL_FLAG(std::string, pipeline_config_path, "", "Pipeline config (protobuf text); required");
ABSL_FLAG(std::string, train_dir, "", "Folder for checkpoints and event files; required");
ABSL_FLAG(std::string, listen, "",
          "Address of the first task served here, host:port or unix:/path; default: with "
          "--task_index, the port of this task's address on all interfaces, or that address itself "
          "if it is local; else 127.0.0.1:2222");
ABSL_FLAG(std::string, sync, "",
          "true: average the gradients of all clones at a barrier; false: apply each gradient on "
          "arrival; default: sync_replicas of the config");
ABSL_FLAG(
    int, num_replicas, 0,
    "Number of clones of all workers together; 0: as the first clone announces, or, in "
    "asynchronous mode, as before in this run. Has no effect once psctl scale has set the number "
    "in this run");
ABSL_FLAG(std::string, state_dir, "auto",
          "Folder for memory-mapped variables, which outlive a killed server; auto: "
          "/dev/shm/pushpull-UID, which only this user can read; empty: anonymous memory");
ABSL_FLAG(
    std::string, from_checkpoint, "",
    "Go back to the newest checkpoint (--from_checkpoint) or to the checkpoint of a step "
    "(--from_checkpoint=STEP), and discard newer steps in the mapped state; checkpoints of later "
    "steps are renamed to ckpt-*.given-up; applies once, to this start of task 0, which is refused "
    "if there is no such checkpoint; if the tasks are several processes, give it to all of them");
ABSL_FLAG(bool, exit_when_done, true,
          "Exit 0 when the last step is applied and the final checkpoint is published");
ABSL_FLAG(
    bool, check_cluster, false,
    "Ask every other ps task whether it is ready, print a table, and exit with 0, or with 200 "
    "if a task is not ready: it does not answer, is still starting, or belongs to another job "
    "or version");
ABSL_FLAG(int, health_port, 0,
          "Port of a gRPC health service on all interfaces, without TLS; it says only whether the "
          "server serves; 0: off");
ABSL_FLAG(std::string, peer_secret_file, "",
          "File with the secret that the ps tasks share and nobody else may read; needed when they "
          "run in several processes without TLS; default: peer_secret in train_dir, which task 0 "
          "creates");
ABSL_FLAG(
    int, max_connections, 512,
    "Connections to each task at a time, at most half of them from one address; more are refused");
ABSL_FLAG(std::string, trace, "",
          "File for a Chrome trace of the server's work, for chrome://tracing or ui.perfetto.dev; "
          "it ends at 64 MiB; empty: no trace");
ABSL_FLAG(
    int, metrics_port, 0,
    "Port of an HTTP server with a status page at / and Prometheus metrics at /metrics; 0: off");
ABSL_FLAG(
    std::string, metrics_host, "",
    "Address at which --metrics_port listens; default: 127.0.0.1; 0.0.0.0, all addresses of IPv4 "
    "and IPv6, for scrapers on other machines. Anybody who can connect can read loss, speed and "
    "host names of clones, without TLS or a password, but cannot change anything");
ABSL_FLAG(int, apply_threads, 0, "Threads that apply the optimizer; 0: one per core");
ABSL_FLAG(absl::Duration, lease, pushpull::kDefaultLease,
          "Synchronous mode: a clone that is silent for this long loses its replica to another "
          "clone until it comes back; such as 30s or 5m");

namespace pushpull {
namespace {

// The value of --from_checkpoint that is given without a step.
constexpr char kNewest[] = "newest";

// Parses --sync. An empty value gives nullopt.
absl::StatusOr<std::optional<bool>> SyncFromFlags() {
  const std::string value = absl::GetFlag(FLAGS_sync);
  if (value.empty()) return std::optional<bool>();
  if (value == "true" || value == "1") return std::optional<bool>(true);
  if (value == "false" || value == "0") return std::optional<bool>(false);
  return UsageError(absl::StrCat("--sync=", value, ", expected true or false"));
}

// Returns the number of tasks with the flag that gives it, --tasks or --ps_tasks. Returns nullopt
// if neither is given.
absl::StatusOr<std::optional<Sourced<int>>> TasksFromFlags() {
  const int tasks = absl::GetFlag(FLAGS_tasks);
  const int ps_tasks = absl::GetFlag(FLAGS_ps_tasks);
  if (tasks != 0 && ps_tasks != 0 && tasks != ps_tasks) {
    return UsageError(absl::StrCat("--tasks=", tasks, " and --ps_tasks=", ps_tasks,
                                   " disagree: they are two names of one flag, so give one"));
  }
  std::optional<Sourced<int>> result;
  if (ps_tasks != 0) result = {ps_tasks, "flag --ps_tasks"};
  if (tasks != 0) result = {tasks, "flag --tasks"};
  return result;
}

// Flags that are not given are filled in from the environment (TF_CONFIG, Slurm).
absl::StatusOr<ClusterSpec> ClusterFromFlags() {
  ClusterView flags;
  PP_ASSIGN_OR_RETURN(flags.num_ps, TasksFromFlags());
  if (const int index = absl::GetFlag(FLAGS_task_index); index != -1) {
    flags.index = {index, "flag --task_index"};
  }
  if (!absl::GetFlag(FLAGS_cluster).empty()) {
    flags.ps = {absl::GetFlag(FLAGS_cluster), "flag --cluster"};
  }
  std::optional<std::string> listen;
  if (!absl::GetFlag(FLAGS_listen).empty()) listen = absl::GetFlag(FLAGS_listen);
  absl::StatusOr<ClusterSpec> cluster = FindCluster(Role::kPs, flags, listen, ProcessEnvironment());
  if (!cluster.ok()) return WithExitCode(cluster.status(), kExitUsage);
  return cluster;
}

// Clones renew their leases four times as often as these end.
constexpr absl::Duration kShortestLease = absl::Milliseconds(100);

absl::Status CheckPeerSecretFlag(const ClusterSpec& cluster, const TransportSecurity& security) {
  if (absl::GetFlag(FLAGS_peer_secret_file).empty()) return absl::OkStatus();
  if (security.tls.has_value()) {
    return UsageError(
        "--peer_secret_file is for ps tasks without TLS; with --tls_ca, --tls_cert and --tls_key "
        "their certificates prove who they are, so leave it out");
  }
  if (cluster.index.value < 0 || cluster.num_ps.value == 1) {
    return UsageError(
        "--peer_secret_file is for ps tasks in several processes, and this process serves all "
        "tasks of the job, so leave it out");
  }
  return absl::OkStatus();
}

absl::Status CheckFlags(const ClusterSpec& cluster, const TransportSecurity& security) {
  if (absl::GetFlag(FLAGS_pipeline_config_path).empty()) {
    return UsageError("--pipeline_config_path is required");
  }
  PP_RETURN_IF_ERROR(CheckAtLeast("max_connections", absl::GetFlag(FLAGS_max_connections), 2));
  PP_RETURN_IF_ERROR(CheckPort("metrics_port", absl::GetFlag(FLAGS_metrics_port)));
  PP_RETURN_IF_ERROR(CheckPort("health_port", absl::GetFlag(FLAGS_health_port)));
  if (absl::GetFlag(FLAGS_metrics_port) == 0 && !absl::GetFlag(FLAGS_metrics_host).empty()) {
    return UsageError("--metrics_host is for --metrics_port, which is not set");
  }
  const std::string from = absl::GetFlag(FLAGS_from_checkpoint);
  uint64_t step = 0;
  if (!from.empty() && from != kNewest && !absl::SimpleAtoi(from, &step)) {
    return UsageError(
        absl::StrCat("--from_checkpoint=", from, ", expected the step of a checkpoint"));
  }
  PP_RETURN_IF_ERROR(CheckAtLeast("num_replicas", absl::GetFlag(FLAGS_num_replicas), 0));
  PP_RETURN_IF_ERROR(CheckAtLeast("apply_threads", absl::GetFlag(FLAGS_apply_threads), 0));
  PP_RETURN_IF_ERROR(CheckAtLeast("lease", absl::GetFlag(FLAGS_lease), kShortestLease));
  return CheckPeerSecretFlag(cluster, security);
}

ServerOptions OptionsFromFlags(const ClusterSpec& cluster, config::TrainEvalPipelineConfig config,
                               std::optional<bool> sync) {
  ServerOptions options;
  options.sync = sync.value_or(config.train_config().sync_replicas());
  options.config = std::move(config);
  options.train_dir = absl::GetFlag(FLAGS_train_dir);
  options.tasks = cluster.num_ps.value;
  options.task_index = cluster.index.value;
  options.cluster = cluster.ps.value;
  options.listen = cluster.listen.value;
  options.num_replicas = absl::GetFlag(FLAGS_num_replicas);
  options.state_dir = absl::GetFlag(FLAGS_state_dir);
  if (options.state_dir == "auto") options.state_dir = DefaultStateDir();
  if (const std::string from = absl::GetFlag(FLAGS_from_checkpoint); !from.empty()) {
    options.from_checkpoint = true;
    uint64_t step = 0;
    if (absl::SimpleAtoi(from, &step)) options.from_step = step;
  }
  options.apply_threads = absl::GetFlag(FLAGS_apply_threads);
  if (options.apply_threads == 0) {
    options.apply_threads = NumCores();
  }
  options.lease = absl::GetFlag(FLAGS_lease);
  options.peer_secret_file = absl::GetFlag(FLAGS_peer_secret_file);
  options.limits.max_connections = absl::GetFlag(FLAGS_max_connections);
  options.limits.max_connections_per_peer = options.limits.max_connections / 2;
  return options;
}

void ShowProgress(const Server& server, ProgressLine* line) {
  const ps::StatusReply status = server.Status();
  if (status.run_id().empty()) {  // task 0 is in another process and shows the progress
    const std::string waiting_for = server.WaitingFor();
    return waiting_for.empty() ? line->Rest() : line->Wait(waiting_for);
  }
  const TrainingFigures figures = server.Figures();
  if (!status.waiting_for().empty()) {
    line->Wait(status.waiting_for());
    return;
  }
  if (figures.step == 0) {
    line->Wait("the first step");
    return;
  }
  Progress progress;
  progress.step = static_cast<int64_t>(figures.step);
  progress.num_steps = static_cast<int64_t>(status.num_steps());
  progress.loss = figures.loss;
  if (figures.accuracy >= 0.0) progress.accuracy = figures.accuracy;
  progress.learning_rate = figures.learning_rate;
  progress.images_per_second = figures.images_per_second;
  for (const ps::CloneStatus& clone : status.clones()) {
    if (!clone.alive()) continue;
    progress.clone_images_per_second.push_back(clone.progress().images_per_second());
  }
  // Clones without a replica are spares; with fewer clones than replicas, some compute several.
  if (status.sync() && static_cast<int>(status.num_replicas()) != status.clones_size()) {
    progress.details = absl::StrCat(status.num_replicas(), " replicas");
  }
  progress.staleness = static_cast<double>(figures.staleness);
  if (figures.steps_per_second > 0.0 && status.num_steps() > figures.step) {
    progress.time_left =
        absl::Seconds((status.num_steps() - figures.step) / figures.steps_per_second);
  }
  line->Update(progress);
}

// Starts the HTTP server for monitoring. Returns null without --metrics_port.
absl::StatusOr<std::unique_ptr<MonitoringServer>> StartMonitoring() {
  if (absl::GetFlag(FLAGS_metrics_port) == 0) return std::unique_ptr<MonitoringServer>();
  HttpServerOptions options;
  if (const std::string host = absl::GetFlag(FLAGS_metrics_host); !host.empty()) {
    options.host = host;
  }
  options.port = absl::GetFlag(FLAGS_metrics_port);
  return MonitoringServer::Start(options);
}

// Shows the server until the result is destroyed.
std::unique_ptr<MonitoringServer::Shown> ShowMonitoring(const Server& server,
                                                        MonitoringServer* monitoring) {
  auto shown = monitoring->Show(server.MakeMonitoringIdentity(std::string(BuildVersion())),
                                server.MakeMonitoringSources());
  const std::string host = absl::GetFlag(FLAGS_metrics_host);
  LOG(INFO) << "status page at http://"
            << HttpAuthority(host.empty() ? HttpServerOptions().host : host, monitoring->port())
            << "/";
  return shown;
}

// How often Serve looks for a signal and shows the progress.
constexpr absl::Duration kServePeriod = absl::Milliseconds(200);

absl::Status Serve(Server* server, const StopSignal& signal, Clock* clock) {
  ProgressLine line(&std::cerr, clock, ProgressOptionsFor(STDERR_FILENO));
  bool draining = false;
  std::optional<absl::Status> end;   // of the job
  std::optional<absl::Status> left;  // why the process does not stay after the end of training
  for (;;) {
    end = server->WaitForEnd(kServePeriod);
    const bool stay = end.has_value() && end->ok() && !absl::GetFlag(FLAGS_exit_when_done);
    if (end.has_value() && !stay) break;
    if (stay && (signal.requested() || server->end_wanted())) {
      left = absl::CancelledError(signal.requested() ? "stopped by signal"
                                                     : "ended by an administrator");
      break;
    }
    if (stay) clock->Sleep(kServePeriod);  // WaitForEnd does not wait after the end
    if (signal.requested() && !draining) {
      draining = true;
      LOG(INFO) << "finishing or giving up the open step, then publishing a checkpoint";
      server->Drain();
    }
    ShowProgress(*server, &line);
  }
  line.Finish();
  server->Stop(*end);  // clones and other tasks hear that training is done, whatever comes then
  return left.value_or(*end);
}

ConfigContext ContextOf(std::optional<bool> sync) {
  ConfigContext context;
  context.sync = sync;
  context.external_models = true;
  return context;
}

// Implements --check_cluster. If a pipeline config is given, task 0 must have what it needs alike
// with this task.
absl::Status CheckPeers(const ClusterSpec& cluster, std::optional<bool> sync,
                        const TransportSecurity& security) {
  ClusterCheckOptions check;
  check.ps =
      cluster.index.value >= 0 ? cluster.ps.value : std::vector<std::string>{cluster.listen.value};
  check.own_task = std::max(0, cluster.index.value);
  check.security = security;
  PosixFileSystem files;
  if (const std::string path = absl::GetFlag(FLAGS_pipeline_config_path); !path.empty()) {
    PP_ASSIGN_OR_RETURN(config::TrainEvalPipelineConfig config,
                        LoadValidConfig(path, ContextOf(sync)));
    const bool mode = sync.value_or(config.train_config().sync_replicas());
    const TaskSettings settings{std::move(config), mode, cluster.num_ps.value, check.own_task,
                                absl::GetFlag(FLAGS_train_dir)};
    check.job_difference = [settings, &files](const ps::JobReply& told) {
      return DescribeDisagreement(told, settings, files);
    };
  }
  TransportOptions transport;
  PP_ASSIGN_OR_RETURN(transport.credentials,
                      TransportCredentials::Create(security, {PeerRole::kPs}));
  const ClusterReport report = CheckCluster(check, [&transport](const std::string& address) {
    return MakeGrpcPsClient(address, transport);
  });
  PP_RETURN_IF_ERROR(PrintResult(std::cout, report.Table()));
  return report.status();
}

absl::Status RunServer(bool check_config) {
  PP_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterFromFlags());
  PP_ASSIGN_OR_RETURN(const TransportSecurity security, TransportSecurityFromFlags());
  std::vector<std::string> addresses = cluster.ps.value;
  addresses.push_back(cluster.listen.value);
  PP_RETURN_IF_ERROR(CheckAddresses(security, addresses));
  if (absl::GetFlag(FLAGS_check_cluster)) {
    PP_ASSIGN_OR_RETURN(const std::optional<bool> mode, SyncFromFlags());
    return CheckPeers(cluster, mode, security);
  }
  PP_RETURN_IF_ERROR(CheckFlags(cluster, security));
  PP_ASSIGN_OR_RETURN(const std::optional<bool> sync, SyncFromFlags());
  const std::string path = absl::GetFlag(FLAGS_pipeline_config_path);
  PP_ASSIGN_OR_RETURN(config::TrainEvalPipelineConfig config,
                      LoadValidConfig(path, ContextOf(sync)));
  if (check_config) return PrintEffectiveConfig(config);
  if (absl::GetFlag(FLAGS_train_dir).empty()) return UsageError("--train_dir is required");

  const std::unique_ptr<StopSignal> signal = StopSignal::Install([](int) {});
  LOG(INFO) << cluster.Describe();
  SteadyClock clock;
  PosixFileSystem files;
  ServerOptions options = OptionsFromFlags(cluster, std::move(config), sync);
  options.security = security;
  options.stop_requested = [&signal] { return signal->requested(); };
  // The lock comes before everything that another process with the same task has too: the trace
  // file and the ports.
  std::unique_ptr<TrainDirLock> lock_of_task;
  if (options.task_index <= 0) {
    PP_ASSIGN_OR_RETURN(options.locked_train_dir, TrainDir::Open(&files, options.train_dir));
  } else {
    PP_ASSIGN_OR_RETURN(lock_of_task,
                        TrainDirLock::Take(&files, options.train_dir, options.task_index));
  }
  ClockOffset trace_clock;
  std::unique_ptr<TraceWriter> trace;
  if (const std::string file = absl::GetFlag(FLAGS_trace); !file.empty()) {
    TraceWriterOptions tracing;
    if (options.task_index > 0) tracing.clock = options.trace_clock = &trace_clock;
    PP_ASSIGN_OR_RETURN(trace, TraceWriter::Create(&files, file, tracing));
    options.trace = trace.get();
  }
  const bool follows_clock = options.trace_clock != nullptr;
  // The health server answers probes before recovery starts, and reports "serving" when it is over.
  std::unique_ptr<HealthServer> health;
  if (const int port = absl::GetFlag(FLAGS_health_port); port > 0) {
    PP_ASSIGN_OR_RETURN(health, StartHealthServer(absl::StrCat("0.0.0.0:", port)));
    options.on_serving = [&health] { health->SetServing(true); };
  }
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<MonitoringServer> monitoring, StartMonitoring());
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
                      Server::Create(std::move(options), &files, &clock));
  std::unique_ptr<MonitoringServer::Shown> shown;  // destroyed before the server
  if (monitoring != nullptr) shown = ShowMonitoring(*server, monitoring.get());
  LOG(INFO) << "listening on " << absl::StrJoin(server->addresses(), ", ") << "; train_dir "
            << absl::GetFlag(FLAGS_train_dir);
  const absl::Status end = Serve(server.get(), *signal, &clock);
  LOG_IF(INFO, follows_clock) << "the clock of ps task 0 is " << trace_clock.Describe(clock.Now());
  if (end.ok()) {
    const ps::StatusReply status = server->Status();
    if (status.run_id().empty()) {  // no coordinator here
      std::cout << "ps task 0 has trained to the end\n";
    } else {
      std::cout << "trained to step " << status.version() << ", checkpoint at step "
                << status.durable_step() << " in " << absl::GetFlag(FLAGS_train_dir) << "\n";
    }
  }
  return end;
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  pushpull::MainOptions options;
  options.usage = "Holds the variables of a training job and applies the clones' gradients.";
  // A string flag of Abseil needs a value and would take the next word, so a plain
  // --from_checkpoint gets one here.
  std::string newest = absl::StrCat("--from_checkpoint=", pushpull::kNewest);
  for (int i = 1; i < argc; ++i) {
    const absl::string_view word = argv[i];
    if (word == "--from_checkpoint" || word == "-from_checkpoint") argv[i] = newest.data();
  }
  const pushpull::MainArguments arguments = pushpull::InitMain(argc, argv, options);
  return pushpull::FinishMain(pushpull::RunServer(arguments.check_config));
}
