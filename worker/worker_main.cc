// The worker program. Without --clone_index it is the supervisor of num_clones clone processes;
// the supervisor starts each of these as the same program with --clone_index.
// Tested by tests/e2e/training_test.py.
// Tested by tests/e2e/bad_input_test.py.
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "glog/logging.h"

#include "common/base/file_system.h"
#include "common/base/num_cores.h"
#include "common/base/status_macros.h"
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
#include "common/trace/clock_offset.h"
#include "common/trace/trace_parts.h"
#include "common/trace/trace_writer.h"
#include "common/wire/gradient_codec.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "common/wire/security/transport_credentials.h"
#include "kernels/gpu.h"
#include "worker/cli/device_choice.h"
#include "worker/cli/device_flags.h"
#include "worker/cli/gpu_report.h"
#include "worker/client/clone_identity.h"
#include "worker/train/clone_process.h"
#include "worker/train/gpu_probe.h"
#include "worker/train/report_socket.h"
#include "worker/train/stop_switch.h"
#include "worker/train/supervisor.h"
#include "worker/train/worker_progress.h"

ABSL_FLAG(std::vector<std::string>, ps, {},
          "Address of ps task 0, which knows the others, or of all ps tasks in order: host:port or "
          "unix:/path; default: from TF_CONFIG or Slurm, else 127.0.0.1:2222");
ABSL_FLAG(
    int, num_clones, 0,
    "Number of clone processes of this worker; 0: one per GPU of --gpus, or 1 without --gpus");
ABSL_FLAG(int, num_workers, 0,
          "Number of workers of the job; default: from TF_CONFIG or Slurm, else 1");
ABSL_FLAG(int, worker_index, -1,
          "Index of this worker, counted from 0; default: from TF_CONFIG or Slurm, else 0");
ABSL_FLAG(bool, check_cluster, false,
          "Ask every ps task whether it is ready, print a table, and exit with 0, or with 200 if a "
          "task is not ready: it does not answer, is still starting, or belongs to another job or "
          "version");
ABSL_FLAG(std::string, gradient_precision, "fp32",
          "Precision of pushed gradients: fp32; bf16, which halves the data sent; or int8, which "
          "sends about a quarter and carries the rounding error into the clone's next gradient "
          "(after a killed process a run then ends with other bits). The server sums in fp32");
ABSL_FLAG(std::string, weight_precision, "fp32",
          "Precision of pulled weights: fp32, or bf16, which halves the data received. The clones "
          "then compute with rounded weights, moving statistics included; the server's stay fp32");
ABSL_FLAG(bool, shared_memory, true,
          "true: exchange weights and gradients with ps tasks on this machine through shared "
          "memory; false: through the connection, as with tasks on other machines");
ABSL_FLAG(
    std::string, gpu_library, "own",
    "Who computes convolutions on a GPU. own: our kernels. auto: cuDNN and cuBLASLt, where "
    "they are installed and faster; measured once per GPU, driver and version and kept in "
    "~/.cache/pushpull/gpu_choices. vendor: the libraries wherever they can. The last bits of "
    "a training depend on who computes");
ABSL_FLAG(bool, show_gpus, false,
          "Show utilisation and memory use of the clones' GPUs in the progress line");
ABSL_FLAG(int, threads, 0,
          "CPU threads per clone; on a GPU these prepare the images; 0: the number of cores "
          "divided by the number of clones");
ABSL_FLAG(std::string, data_dir, "", "Folder that relative paths of the pipeline config begin in");
ABSL_FLAG(std::string, image_cache_dir, "",
          "Folder on a local disk for a cache of decoded training images, which is built once and "
          "read by all clones of the machine; empty: images are decoded each time they are used");
ABSL_FLAG(int, image_cache_max_side, 0,
          "Scale images in the cache down so that no side is longer than this many pixels, which "
          "changes the training data; 0: keep their size");
ABSL_FLAG(absl::Duration, peer_deadline, absl::Minutes(5),
          "Exit with 200 when a ps task has not answered for this long, such as 30s or 5m");
ABSL_FLAG(std::string, trace, "",
          "File for a Chrome trace of the clones' phases, for chrome://tracing or ui.perfetto.dev. "
          "It has the first 64 MiB of each clone process and is written when the clones have "
          "ended; until then each process writes a file FILE.clone...; empty: no trace");
ABSL_FLAG(int, clone_index, -1,
          "Internal: the supervisor passes it to the clone processes that it starts");
ABSL_FLAG(std::string, earlier_device, "",
          "Internal: the supervisor passes on what the clone's earlier process computed on, cpu or "
          "the UUID of a GPU");

namespace pushpull {
namespace {

DeviceFlags CloneDeviceFromFlags() {
  DeviceFlags flags = DeviceFromFlags();
  flags.earlier_device = absl::GetFlag(FLAGS_earlier_device);
  flags.gpu_library = absl::GetFlag(FLAGS_gpu_library);
  flags.show_gpus = absl::GetFlag(FLAGS_show_gpus);
  flags.default_precision = Precision::kBfloat16;
  return flags;
}

// A file in the user's cache folder; empty if the environment does not name that.
std::string LibraryChoicesFile(const std::map<std::string, std::string>& environment) {
  const auto cache = environment.find("XDG_CACHE_HOME"), home = environment.find("HOME");
  const char* const file = "pushpull/gpu_choices";
  if (cache != environment.end() && !cache->second.empty()) return JoinPath(cache->second, file);
  if (home == environment.end() || home->second.empty()) return "";
  return JoinPath(JoinPath(home->second, ".cache"), file);
}

absl::Status CheckFlags() {
  const int clones = absl::GetFlag(FLAGS_num_clones);
  const DeviceFlags device = CloneDeviceFromFlags();
  const size_t gpus = device.gpus.size();
  PP_RETURN_IF_ERROR(CheckAtLeast("num_clones", clones, 0));
  if (gpus > 0 && clones > 0 && static_cast<int>(gpus) != clones) {
    return UsageError(absl::StrCat("--num_clones=", clones,
                                   " and --gpus=", absl::StrJoin(device.gpus, ","), " (", gpus,
                                   " GPUs) disagree: name one GPU per clone"));
  }
  PP_RETURN_IF_ERROR(CheckDeviceFlags(device));
  PP_RETURN_IF_ERROR(
      CheckAtLeast("peer_deadline", absl::GetFlag(FLAGS_peer_deadline), absl::Milliseconds(1)));
  const std::string gradients = absl::GetFlag(FLAGS_gradient_precision);
  if (FindGradientCodec(gradients) == nullptr) {
    return UsageError(absl::StrCat("--gradient_precision=", gradients, ", expected one of ",
                                   GradientCodecFlags()));
  }
  const std::string weights = absl::GetFlag(FLAGS_weight_precision);
  if (FindWeightCodec(weights) == nullptr) {
    return UsageError(
        absl::StrCat("--weight_precision=", weights, ", expected one of ", WeightCodecFlags()));
  }
  PP_RETURN_IF_ERROR(CheckAtLeast("threads", absl::GetFlag(FLAGS_threads), 0));
  const int max_side = absl::GetFlag(FLAGS_image_cache_max_side);
  PP_RETURN_IF_ERROR(CheckAtLeast("image_cache_max_side", max_side, 0));
  if (max_side > 0 && absl::GetFlag(FLAGS_image_cache_dir).empty()) {
    return UsageError("--image_cache_max_side is for --image_cache_dir, which is not set");
  }
  return absl::OkStatus();
}

WorkerOptions OptionsFromFlags(const ClusterSpec& cluster) {
  WorkerOptions options;
  options.ps = cluster.ps.value;
  options.num_clones = absl::GetFlag(FLAGS_num_clones);
  if (options.num_clones == 0) {
    options.num_clones = std::max<int>(1, DeviceFromFlags().gpus.size());
  }
  options.num_workers = cluster.num_workers.value;
  options.worker_index = cluster.index.value;
  options.compute.threads = absl::GetFlag(FLAGS_threads);
  if (options.compute.threads == 0)
    options.compute.threads = std::max(1, NumCores() / options.num_clones);
  options.gradient_codec = FindGradientCodec(absl::GetFlag(FLAGS_gradient_precision));
  options.session.weight_codec = FindWeightCodec(absl::GetFlag(FLAGS_weight_precision));
  options.shared_memory = absl::GetFlag(FLAGS_shared_memory);
  options.data_dir = absl::GetFlag(FLAGS_data_dir);
  options.image_cache.folder = absl::GetFlag(FLAGS_image_cache_dir);
  options.image_cache.max_side = absl::GetFlag(FLAGS_image_cache_max_side);
  options.session.peer_deadline = absl::GetFlag(FLAGS_peer_deadline);
  return options;
}

// Values that no flag gives come from the environment.
absl::StatusOr<ClusterSpec> ClusterFromFlags() {
  ClusterView flags;
  if (!absl::GetFlag(FLAGS_ps).empty()) flags.ps = {absl::GetFlag(FLAGS_ps), "flag --ps"};
  if (const int workers = absl::GetFlag(FLAGS_num_workers); workers != 0) {
    flags.num_workers = {workers, "flag --num_workers"};
  }
  if (const int index = absl::GetFlag(FLAGS_worker_index); index != -1) {
    flags.index = {index, "flag --worker_index"};
  }
  absl::StatusOr<ClusterSpec> cluster =
      FindCluster(Role::kWorker, flags, std::nullopt, ProcessEnvironment());
  if (!cluster.ok()) return WithExitCode(cluster.status(), kExitUsage);
  return cluster;
}

absl::Status CheckPeers(const WorkerOptions& options) {
  ClusterCheckOptions check;
  check.ps = options.ps;
  check.security = options.security;
  TransportOptions transport;
  PP_ASSIGN_OR_RETURN(transport.credentials,
                      TransportCredentials::Create(options.security, {PeerRole::kWorker}));
  const ClusterReport report = CheckCluster(check, [&transport](const std::string& address) {
    return MakeGrpcPsClient(address, transport);
  });
  PP_RETURN_IF_ERROR(PrintResult(std::cout, report.Table()));
  return report.status();
}

// Opens the clone's GPU, and sets what the clone computes with. Returns null if that is the CPU.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(int clone, WorkerOptions* options) {
  DeviceFlags flags = CloneDeviceFromFlags();
  flags.library_choices_file = LibraryChoicesFile(ProcessEnvironment());
  PP_ASSIGN_OR_RETURN(ChosenDevice chosen, OpenChosenDevice(flags, clone, {CountGpus, OpenGpu}));
  // The warning is the same for all clones.
  LOG_IF(WARNING, !chosen.warning.empty() && clone == 0) << chosen.warning;
  options->session.arithmetic = ArithmeticOf(chosen, HostName());
  LOG(INFO) << "clone " << clone << " computes on " << DescribeDevice(chosen);
  options->compute.device = chosen.device.get();
  options->compute.precision = chosen.precision;
  return std::move(chosen.device);
}

// Returns null on the CPU, and if the GPU's figures cannot be read.
std::unique_ptr<GpuProbe> OpenProbe(const Device* device, const Clock* clock, int clone) {
  if (device == nullptr) return nullptr;
  absl::StatusOr<std::unique_ptr<GpuMonitor>> monitor = GpuMonitor::Open();
  if (monitor.ok()) {
    return std::make_unique<GpuProbe>(*std::move(monitor), device->uuid(), device->description(),
                                      clock);
  }
  LOG_IF(INFO, clone == 0) << "cannot read the GPU's utilisation and memory: "
                           << monitor.status().message();
  return nullptr;
}

absl::Status RunAsClone(WorkerOptions options, int clone) {
  prctl(PR_SET_NAME, "worker");  // which ps and pgrep show; otherwise "exe", after /proc/self/exe
  SteadyClock clock;
  StopSwitch stop;
  // The supervisor forwards its signals to the clones.
  const std::unique_ptr<StopSignal> signal =
      StopSignal::Install([&stop](int) { stop.Stop(); }, {.forwarder = getppid()});
  PP_ASSIGN_OR_RETURN(options.session.identity, ReceiveCloneIdentity(Supervisor::kSupervisorFd));
  PosixFileSystem files;
  ClockOffset server_clock;
  std::unique_ptr<TraceWriter> trace;
  if (const std::string path = absl::GetFlag(FLAGS_trace); !path.empty()) {
    TraceWriterOptions tracing;
    tracing.clock = &server_clock;
    PP_ASSIGN_OR_RETURN(trace,
                        TraceWriter::Create(&files, TracePartPath(path, clone, getpid()), tracing));
    options.trace = trace.get();
    options.session.server_clock = &server_clock;
  }
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenDevice(clone, &options));
  const std::unique_ptr<GpuProbe> probe = OpenProbe(device.get(), &clock, clone);
  options.gpu = probe.get();
  ReportSocket reports(Supervisor::kSupervisorFd, &clock);
  const auto send = [&reports, &device](CloneReport report) {
    if (device != nullptr) report.gpu = device->uuid();
    reports.Send(report);
  };
  // The supervisor learns the device before it can fail.
  CloneReport opened;
  opened.waiting_for = absl::StrCat("clone ", clone, " of ", options.num_clones, " (starting)");
  send(opened);
  const absl::Status status = RunClone(options, clone, &clock, &stop, send);
  reports.Flush();
  LOG_IF(INFO, trace != nullptr) << "clone " << clone << ": the clock of ps task 0 is "
                                 << server_clock.Describe(clock.Now());
  return WithDeviceExitCode(status, device.get());
}

void ShowProgress(const std::vector<CloneState>& clones, GpuReport* gpus, WorkerProgress* worker,
                  ProgressLine* line) {
  std::string waiting_for;
  std::optional<Progress> progress = worker->Combine(clones, &waiting_for);
  if (!progress.has_value()) {
    line->Wait(waiting_for);
    return;
  }
  std::vector<std::string> uuids;
  for (const CloneState& clone : clones) uuids.push_back(clone.report.gpu);
  progress->details = gpus->Text(uuids);
  line->Update(*progress);
}

std::string OwnPath() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  PCHECK(size > 0 && size < static_cast<ssize_t>(sizeof(path)));
  return std::string(path, size);
}

// Returns null without --show_gpus, and if the GPUs cannot be monitored.
std::unique_ptr<GpuMonitor> OpenMonitor() {
  if (!absl::GetFlag(FLAGS_show_gpus)) return nullptr;
  absl::StatusOr<std::unique_ptr<GpuMonitor>> monitor = GpuMonitor::Open();
  if (monitor.ok()) return std::move(monitor).value();
  LOG(WARNING) << "--show_gpus: " << monitor.status().message();
  return nullptr;
}

// The clones are this program with its flags and the flags of their own. A clone that is started
// later has the same program and flags, although a file of flags or the program may have changed.
SupervisorOptions SupervisorOptionsFor(int num_clones) {
  SupervisorOptions options;
  options.num_clones = num_clones;
  options.program = "/proc/self/exe";
  options.permanent_exit_codes = {kExitUsage, kExitBadInput, kExitMissingInput, kExitInternal,
                                  kExitPeerLost};
  options.renewing_exit_codes = {kExitJobChanged};
  options.leaving_exit_codes = {kExitEvicted};
  options.exit_code_internal = kExitInternal;
  options.command = [path = OwnPath(), flags = FlagsThatAreSet()](int clone,
                                                                  const CloneState& state) {
    std::vector<std::string> command = {path};
    command.insert(command.end(), flags.begin(), flags.end());
    command.push_back(absl::StrCat("--clone_index=", clone));
    // A clone that is started again computes on what it computed on before, so that the bits stay
    // the same and it takes no GPU of another clone.
    if (state.reported) {
      const std::string& gpu = state.report.gpu;
      command.push_back(absl::StrCat("--earlier_device=", gpu.empty() ? kEarlierCpu : gpu));
    }
    return command;
  };
  return options;
}

void LogStart(const WorkerOptions& options) {
  const std::vector<std::string> gpus = DeviceFromFlags().gpus;
  LOG(INFO) << "starting " << options.num_clones << " clones"
            << (gpus.empty() ? "" : absl::StrCat(" on GPUs ", absl::StrJoin(gpus, ","))) << ", "
            << options.compute.threads << " of " << NumCores() << " cores each";
}

void LogEnd(const std::vector<std::string>& summary, const std::vector<CloneState>& clones,
            const std::string& ps) {
  for (const std::string& text : summary) LOG(INFO) << text;
  LOG(INFO) << "the checkpoints are in the train_dir of the ps_server at " << ps;
  for (size_t k = 0; k < clones.size(); ++k) {
    LOG_IF(WARNING, clones[k].phase == CloneState::Phase::kLeft)
        << "clone " << k
        << " of this worker was evicted by an administrator; its own message says why";
  }
}

// `code` is what Supervisor::Run returned.
absl::Status StatusOfClones(int code) {
  switch (code) {
    case kExitDone:
      return absl::OkStatus();
    case kExitEvicted:
      return WithExitCode(absl::PermissionDeniedError("all clones of this worker were evicted"),
                          kExitEvicted);
    case kExitStopped:
      return absl::CancelledError("stopped by signal");
    default:
      return WithExitCode(absl::UnknownError("a clone failed; its message is above"),
                          static_cast<ExitCode>(code));
  }
}

absl::Status RunAsSupervisor(const WorkerOptions& options) {
  SteadyClock clock;
  StopSwitch stop;
  std::atomic<int> stop_signal{0};
  const std::unique_ptr<StopSignal> signal = StopSignal::Install([&](int number) {
    stop_signal.store(number);
    stop.Stop();
  });
  ProgressLine line(&std::cerr, &clock, ProgressOptionsFor(STDERR_FILENO));
  line.Wait(absl::StrCat("ps task 0 at ", options.ps[0]));
  const auto on_wait = [&line](const std::string& text) { line.Wait(text); };
  PP_ASSIGN_OR_RETURN(CheckedJob job,
                      CheckJob(options, &clock, &stop, on_wait, /*checked_input=*/""));
  WorkerProgress progress(job.size);
  PosixFileSystem files;
  const std::string trace = absl::GetFlag(FLAGS_trace);
  if (!trace.empty()) PP_RETURN_IF_ERROR(StartTrace(files, trace));
  LogStart(options);
  GpuReport gpu_report(OpenMonitor(), &clock);
  Supervisor supervisor(SupervisorOptionsFor(options.num_clones), &clock, &stop_signal,
                        [&](const std::vector<CloneState>& clones) {
                          ShowProgress(clones, &gpu_report, &progress, &line);
                        });
  const absl::Duration start = clock.Now();
  int code = supervisor.Run();
  absl::Status checked;
  while (code == kExitJobChanged && checked.ok()) {
    LOG(WARNING) << "the server has come back with other settings; checking the job again, then "
                    "the clones start anew";
    absl::StatusOr<CheckedJob> changed = CheckJob(options, &clock, &stop, on_wait, job.input);
    checked = changed.status();
    if (!checked.ok()) break;
    job = *std::move(changed);
    progress.set_size(job.size);
    code = supervisor.Run();
  }
  line.Finish();
  LogEnd(progress.Summary(clock.Now() - start), supervisor.states(), options.ps[0]);
  if (!trace.empty()) {
    const absl::Status merged = MergeTraceParts(files, trace);
    if (!merged.ok()) LOG(ERROR) << "the trace stays in parts: " << merged.message();
  }
  PP_RETURN_IF_ERROR(checked);
  return StatusOfClones(code);
}

absl::Status RunWorker() {
  PP_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterFromFlags());
  PP_RETURN_IF_ERROR(CheckFlags());
  WorkerOptions options = OptionsFromFlags(cluster);
  PP_ASSIGN_OR_RETURN(options.security, TransportSecurityFromFlags());
  PP_RETURN_IF_ERROR(CheckAddresses(options.security, options.ps));
  if (absl::GetFlag(FLAGS_check_cluster)) return CheckPeers(options);
  const int clone = absl::GetFlag(FLAGS_clone_index);
  if (clone >= 0) return RunAsClone(std::move(options), clone);
  LOG(INFO) << cluster.Describe();
  return RunAsSupervisor(options);
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  pushpull::MainOptions options;
  options.usage = "Trains with num_clones clone processes against a parameter server.";
  const pushpull::MainArguments arguments = pushpull::InitMain(argc, argv, options);
  if (arguments.check_config) {
    return pushpull::FinishMain(pushpull::UsageError(
        "--check_config: a worker takes its pipeline config from the server; ps_server "
        "--check_config --pipeline_config_path=FILE checks it"));
  }
  return pushpull::FinishMain(pushpull::RunWorker());
}
