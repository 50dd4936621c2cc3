// worker: the supervisor of num_clones clone processes, or (with --clone_index) one of them.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "glog/logging.h"

#include "common/cli/exit_codes.h"
#include "common/cli/main_support.h"
#include "common/cli/progress_line.h"
#include "common/cli/stop_signal.h"
#include "common/cli/tf_config.h"
#include "common/error_detail.h"
#include "common/status_macros.h"
#include "kernels/gpu.h"
#include "worker/cli/device_choice.h"
#include "worker/cli/gpu_report.h"
#include "worker/train/clone_process.h"
#include "worker/train/clone_report_codec.h"
#include "worker/train/supervisor.h"

ABSL_FLAG(std::vector<std::string>, ps, std::vector<std::string>({"127.0.0.1:2222"}),
          "Address of ps task 0, which tells the others, or of all tasks in order: host:port or "
          "unix:/path");
ABSL_FLAG(int, num_clones, 0, "Clone processes of this worker; 0: one per GPU of --gpus, else 1");
ABSL_FLAG(std::vector<std::string>, gpus, {},
          "GPU of each clone: indices or UUIDs, one may come twice; default: one after another");
ABSL_FLAG(int, num_workers, 1, "Workers of the job");
ABSL_FLAG(int, worker_index, 0, "Which of them this is");
ABSL_FLAG(std::string, device, "",
          "cuda or cpu; default: cuda if --gpus is given or there is a GPU");
ABSL_FLAG(std::string, precision, "",
          "Of activations: bf16 (default on a GPU) or fp32 (the only one on the CPU)");
ABSL_FLAG(int64_t, gpu_memory_limit_mb, 0, "Of each clone on its GPU, in MiB; 0: all there is");
ABSL_FLAG(bool, show_gpus, false,
          "Show how busy and how full the GPUs of --gpus are behind the progress");
ABSL_FLAG(int, threads, 0, "CPU threads per clone; 0: the cores divided by the clones");
ABSL_FLAG(std::string, data_dir, "", "Prefix of relative input paths of the pipeline config");
ABSL_FLAG(std::string, image_cache_dir, "",
          "Folder on a local disk for the decoded training images, built once and read by all "
          "clones of the host; empty: every image is decoded each time");
ABSL_FLAG(int, image_cache_max_side, 0,
          "Images with a longer side are stored scaled down to it, which changes what is trained "
          "on; 0: as decoded");
ABSL_FLAG(absl::Duration, peer_deadline, absl::Minutes(5),
          "Exit with 200 when a ps task has not answered for so long");
ABSL_FLAG(int, clone_index, -1, "Set by the supervisor for the clone processes it starts");

namespace pushpull {
namespace {

constexpr absl::Duration kReportPeriod = absl::Milliseconds(200);

int NumCores() { return std::max(1u, std::thread::hardware_concurrency()); }

DeviceFlags DeviceFromFlags() {
  DeviceFlags flags;
  flags.device = absl::GetFlag(FLAGS_device);
  flags.gpus = absl::GetFlag(FLAGS_gpus);
  flags.precision = absl::GetFlag(FLAGS_precision);
  flags.gpu_memory_limit_mb = absl::GetFlag(FLAGS_gpu_memory_limit_mb);
  flags.default_precision = Precision::kBfloat16;
  return flags;
}

absl::Status CheckFlags() {
  const int clones = absl::GetFlag(FLAGS_num_clones);
  const size_t gpus = absl::GetFlag(FLAGS_gpus).size();
  if (clones < 0) return UsageError(absl::StrCat("--num_clones=", clones, ", expected at least 0"));
  if (gpus > 0 && clones > 0 && static_cast<int>(gpus) != clones) {
    return UsageError(absl::StrCat("--num_clones=", clones,
                                   " and --gpus=", absl::StrJoin(absl::GetFlag(FLAGS_gpus), ","),
                                   " (", gpus, " GPUs) disagree: name one GPU per clone"));
  }
  PP_RETURN_IF_ERROR(CheckDeviceFlags(DeviceFromFlags()));
  const int workers = absl::GetFlag(FLAGS_num_workers);
  const int index = absl::GetFlag(FLAGS_worker_index);
  if (workers < 1 || index < 0 || index >= workers) {
    return UsageError(
        absl::StrCat("--worker_index=", index, " is not within --num_workers=", workers));
  }
  if (absl::GetFlag(FLAGS_threads) < 0) return UsageError("--threads must not be negative");
  const int max_side = absl::GetFlag(FLAGS_image_cache_max_side);
  if (max_side < 0) return UsageError("--image_cache_max_side must not be negative");
  if (max_side > 0 && absl::GetFlag(FLAGS_image_cache_dir).empty()) {
    return UsageError("--image_cache_max_side is for --image_cache_dir, which is not set");
  }
  return absl::OkStatus();
}

WorkerOptions OptionsFromFlags() {
  WorkerOptions options;
  options.ps = absl::GetFlag(FLAGS_ps);
  options.num_clones = absl::GetFlag(FLAGS_num_clones);
  if (options.num_clones == 0) {
    options.num_clones = std::max<int>(1, absl::GetFlag(FLAGS_gpus).size());
  }
  options.num_workers = absl::GetFlag(FLAGS_num_workers);
  options.worker_index = absl::GetFlag(FLAGS_worker_index);
  options.compute.threads = absl::GetFlag(FLAGS_threads);
  if (options.compute.threads == 0)
    options.compute.threads = std::max(1, NumCores() / options.num_clones);
  options.data_dir = absl::GetFlag(FLAGS_data_dir);
  options.image_cache.folder = absl::GetFlag(FLAGS_image_cache_dir);
  options.image_cache.max_side = absl::GetFlag(FLAGS_image_cache_max_side);
  options.peer_deadline = absl::GetFlag(FLAGS_peer_deadline);
  return options;
}

// TF_CONFIG speaks where the flags are silent.
absl::Status ApplyTfConfig() {
  const char* text = std::getenv("TF_CONFIG");
  if (text == nullptr) return absl::OkStatus();
  PP_ASSIGN_OR_RETURN(const TfConfig config, ParseTfConfig(text));
  if (absl::GetFlag(FLAGS_ps) == std::vector<std::string>({"127.0.0.1:2222"}) &&
      !config.ps.empty()) {
    std::vector<std::string> addresses;
    for (const auto& [index, address] : config.ps) addresses.push_back(address);
    absl::SetFlag(&FLAGS_ps, addresses);
  }
  if (absl::GetFlag(FLAGS_num_workers) == 1 && config.worker_index() >= 0) {
    absl::SetFlag(&FLAGS_num_workers, static_cast<int>(config.num_workers()));
    absl::SetFlag(&FLAGS_worker_index, static_cast<int>(config.worker_index()));
  }
  return absl::OkStatus();
}

// A failure of the whole job, wherever it happened, is no bad input of this worker.
absl::Status WithJobExitCode(absl::Status status) {
  if (GetErrorDetail(status).kind() == ps::ErrorDetail::STOPPED) {
    return WithExitCode(std::move(status), kExitInternal);
  }
  return status;
}

// Writes reports to the supervisor's pipe, not more often than it looks.
class ReportPipe {
 public:
  void Send(const CloneReport& report) {
    const absl::Duration now = clock_.Now();
    if (now - last_ < kReportPeriod && report.waiting_for.empty()) return;
    last_ = now;
    const std::string line = EncodeCloneReport(report);
    // A full or closed pipe loses a report, nothing else.
    (void)!write(Supervisor::kReportFd, line.data(), line.size());
  }

 private:
  SteadyClock clock_;
  absl::Duration last_ = -absl::InfiniteDuration();
};

// Opens the clone's GPU; null: it computes on the CPU.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(int clone, ComputeOptions* compute) {
  PP_ASSIGN_OR_RETURN(ChosenDevice chosen,
                      OpenChosenDevice(DeviceFromFlags(), clone, {CountGpus, OpenGpu}));
  // Once, not once per clone.
  LOG_IF(WARNING, !chosen.warning.empty() && clone == 0)
      << chosen.warning << ": computing on the CPU; --device=cpu says that this is meant";
  LOG_IF(INFO, chosen.device != nullptr)
      << "clone " << clone << " computes on " << chosen.device->description() << " in "
      << (chosen.precision == Precision::kBfloat16 ? "bf16" : "fp32");
  compute->device = chosen.device.get();
  compute->precision = chosen.precision;
  return std::move(chosen.device);
}

absl::Status RunAsClone(WorkerOptions options, int clone) {
  SteadyClock clock;
  StopSwitch stop;
  const std::unique_ptr<StopSignal> signal = StopSignal::Install([&stop](int) { stop.Stop(); });
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenDevice(clone, &options.compute));
  ReportPipe pipe;
  const absl::Status status = RunClone(options, clone, &clock, &stop,
                                       [&pipe](const CloneReport& report) { pipe.Send(report); });
  return WithDeviceExitCode(WithJobExitCode(status), device.get());
}

// One line for all clones.
void ShowProgress(const std::vector<CloneState>& clones, GpuReport* gpus, ProgressLine* line) {
  Progress progress;
  std::string waiting;
  double accuracy = 0.0;
  int trained = 0;
  bool has_accuracy = true;
  for (size_t k = 0; k < clones.size(); ++k) {
    const CloneState& clone = clones[k];
    if (clone.phase == CloneState::Phase::kRestarting) {
      waiting = absl::StrCat("clone ", k, " of ", clones.size(), " (", clone.last_death, ")");
    } else if (clone.phase == CloneState::Phase::kStarting) {
      waiting = absl::StrCat("clone ", k, " of ", clones.size(), " (starting)");
    } else if (!clone.report.waiting_for.empty() && waiting.empty()) {
      waiting = clone.report.waiting_for;
    }
    const CloneReport& report = clone.report;
    if (report.step == 0) continue;
    ++trained;
    progress.step = std::max<int64_t>(progress.step, report.step);
    progress.num_steps = report.num_steps;
    progress.loss += report.loss;
    accuracy += report.accuracy;
    has_accuracy = has_accuracy && report.accuracy >= 0.0;
    progress.learning_rate = report.learning_rate;
    progress.images_per_second += report.images_per_second;
    progress.clone_images_per_second.push_back(report.images_per_second);
    progress.staleness += report.staleness;
  }
  if (!waiting.empty() || trained == 0) {
    line->Wait(waiting.empty() ? "the first step" : waiting);
    return;
  }
  progress.loss /= trained;
  progress.staleness /= trained;
  if (has_accuracy) progress.accuracy = accuracy / trained;
  progress.details = gpus->Text();
  line->Update(progress);
}

std::string OwnPath() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  PCHECK(size > 0 && size < static_cast<ssize_t>(sizeof(path)));
  return std::string(path, size);
}

// Null: not wanted, or nothing to ask.
std::unique_ptr<GpuMonitor> OpenMonitor() {
  if (!absl::GetFlag(FLAGS_show_gpus)) return nullptr;
  absl::StatusOr<std::unique_ptr<GpuMonitor>> monitor = GpuMonitor::Open();
  if (monitor.ok()) return std::move(monitor).value();
  LOG(WARNING) << "--show_gpus: " << monitor.status().message();
  return nullptr;
}

absl::Status RunAsSupervisor(const WorkerOptions& options, const std::vector<std::string>& flags) {
  SteadyClock clock;
  StopSwitch stop;
  std::atomic<int> stop_signal{0};
  const std::unique_ptr<StopSignal> signal = StopSignal::Install([&](int number) {
    stop_signal.store(number);
    stop.Stop();
  });
  ProgressLine line(&std::cerr, &clock, ProgressOptionsFor(STDERR_FILENO));
  line.Wait(absl::StrCat("ps task 0 at ", options.ps[0]));
  PP_RETURN_IF_ERROR(
      CheckJob(options, &clock, &stop, [&line](const std::string& text) { line.Wait(text); }));
  const std::vector<std::string> gpus = absl::GetFlag(FLAGS_gpus);
  LOG(INFO) << "starting " << options.num_clones << " clones"
            << (gpus.empty() ? "" : absl::StrCat(" on GPUs ", absl::StrJoin(gpus, ","))) << ", "
            << options.compute.threads << " of " << NumCores() << " cores each";
  GpuReport gpu_report(gpus, OpenMonitor(), &clock);
  SupervisorOptions supervising;
  supervising.num_clones = options.num_clones;
  supervising.permanent_exit_codes = {kExitUsage, kExitBadInput, kExitMissingInput, kExitInternal,
                                      kExitPeerLost};
  supervising.exit_code_internal = kExitInternal;
  supervising.command = [path = OwnPath(), flags](int clone) {
    std::vector<std::string> command = {path};
    command.insert(command.end(), flags.begin(), flags.end());
    command.push_back(absl::StrCat("--clone_index=", clone));
    return command;
  };
  Supervisor supervisor(
      supervising, &clock, &stop_signal,
      [&](const std::vector<CloneState>& clones) { ShowProgress(clones, &gpu_report, &line); });
  const int code = supervisor.Run();
  line.Finish();
  if (code == kExitDone) return absl::OkStatus();
  if (code == kExitStopped) return absl::CancelledError("stopped by signal");
  return WithExitCode(absl::UnknownError("a clone failed; its message is above"),
                      static_cast<ExitCode>(code));
}

absl::Status RunWorker(const std::vector<std::string>& flags) {
  PP_RETURN_IF_ERROR(ApplyTfConfig());
  PP_RETURN_IF_ERROR(CheckFlags());
  const WorkerOptions options = OptionsFromFlags();
  const int clone = absl::GetFlag(FLAGS_clone_index);
  return clone >= 0 ? RunAsClone(options, clone) : RunAsSupervisor(options, flags);
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  const std::vector<std::string> flags(argv + 1, argv + argc);
  pushpull::MainOptions options;
  options.usage = "Trains with num_clones clone processes against a parameter server.";
  pushpull::InitMain(argc, argv, options);
  return pushpull::FinishMain(pushpull::RunWorker(flags));
}
