// Measures a training step on a GPU: images per second, and the time of each layer. PyTorch runs
// the same step on the same GPU for comparison (gpu_step_torch.py). Weights, images and labels are
// generated. scripts/bench/gpu_step starts this program.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

#include "common/base/status_macros.h"
#include "common/cli/exit_codes.h"
#include "common/cli/main_support.h"
#include "kernels/device_selection.h"
#include "kernels/gpu.h"
#include "scripts/bench/median.h"
#include "scripts/bench/step/bench_network.h"
#include "scripts/bench/step/device_step.h"
#include "scripts/bench/step/first_losses.h"
#include "scripts/bench/step/operator_table.h"
#include "scripts/bench/step/torch_child.h"

ABSL_FLAG(std::string, gpu, "0", "index or UUID of the GPU");
ABSL_FLAG(std::vector<std::string>, networks,
          (std::vector<std::string>{"mobilenet_v2", "ssd_mobilenet_v2", "ssd_mobilenet_v1"}),
          "which networks, in this order");
ABSL_FLAG(std::vector<std::string>, batches, {},
          "batch sizes; default: 256 for the classifier, 128 for detectors");
ABSL_FLAG(std::string, precision, "bf16", "bf16 or fp32, for both sides");
ABSL_FLAG(std::string, gpu_library, "own",
          "own: our kernels; auto: cuDNN and cuBLASLt where they are faster, measured in this run; "
          "vendor: wherever they can");
ABSL_FLAG(int, steps, 100, "steps of one measurement");
ABSL_FLAG(int, repeats, 3, "measurements of each side, alternating; the median is reported");
ABSL_FLAG(std::string, table, "layer",
          "rows of the time table: layer (one per kind and shape), kind or none");
ABSL_FLAG(int, losses, 50, "number of first losses that are compared between both sides; 0: none");
ABSL_FLAG(int, losses_batch, 64, "batch size of that comparison");
ABSL_FLAG(std::string, torch, "", "Python interpreter that has PyTorch; empty: no comparison");
ABSL_FLAG(std::string, torch_script, "", "path of gpu_step_torch.py");
ABSL_FLAG(std::vector<std::string>, torch_modes,
          (std::vector<std::string>{"eager", "max-autotune"}),
          "some of eager, compile (torch.compile with CUDA graphs) and max-autotune (which also "
          "compares kernels and takes minutes)");
ABSL_FLAG(int, torch_profile, 0,
          "number of rows of a table with PyTorch's slowest kernels in each mode; 0: no table");
ABSL_FLAG(std::string, torch_optimizer, "none",
          "none: forward, loss and backward, as our step; momentum: PyTorch updates weights too");
ABSL_FLAG(absl::Duration, torch_timeout, absl::Minutes(5), "timeout of one answer from PyTorch");
ABSL_FLAG(std::string, torch_device, "cuda", "cuda or cpu");
ABSL_FLAG(double, bandwidth, 0.0,
          "GB/s of a copy within the GPU's memory, for the table's floor; 0: measure it");
ABSL_FLAG(int, size, 0, "size of the images; default 224, or 300 for detectors");
ABSL_FLAG(int, classes, 0, "number of classes; default 1000, or 90 for detectors");
ABSL_FLAG(double, width, 1.0, "depth multiplier");

namespace pushpull {
namespace {

struct Settings {
  Precision precision = Precision::kBfloat16;
  std::vector<int64_t> batches;  // empty: the default of the network
  double bandwidth = 0.0;        // bytes per second
  Device* device = nullptr;
  TorchChild* torch = nullptr;  // null: no comparison
};

BenchNetworkOptions OptionsFor(const std::string& model) {
  const bool classifies = model == "mobilenet_v2";
  BenchNetworkOptions options;
  options.model = model;
  options.size = absl::GetFlag(FLAGS_size) > 0 ? absl::GetFlag(FLAGS_size) : classifies ? 224 : 300;
  options.classes = absl::GetFlag(FLAGS_classes) > 0 ? absl::GetFlag(FLAGS_classes)
                    : classifies                     ? 1000
                                                     : 90;
  options.width = absl::GetFlag(FLAGS_width);
  return options;
}

// Images per second of each side at one batch size.
struct Rates {
  int64_t batch = 0;
  double ours = 0.0;
  std::map<std::string, double> torch;  // by mode, without modes that failed
};

// Leaves a mode of PyTorch out once it has failed.
absl::Status AskTorch(const Settings& settings, const std::string& model, int64_t batch,
                      std::map<std::string, std::vector<double>>* rates) {
  for (auto it = rates->begin(); it != rates->end();) {
    const absl::StatusOr<nlohmann::json> answer = settings.torch->Ask(
        absl::StrCat("run ", model, " ", batch, " ", it->first, " ",
                     absl::GetFlag(FLAGS_torch_optimizer), " ", absl::GetFlag(FLAGS_steps)),
        absl::GetFlag(FLAGS_torch_timeout));
    if (absl::IsFailedPrecondition(answer.status())) {
      std::cout << "  PyTorch " << it->first << ", batch " << batch << ": "
                << answer.status().message() << std::endl;
      it = rates->erase(it);
      continue;
    }
    PP_RETURN_IF_ERROR(answer.status());
    it->second.push_back((*answer)["images_per_s"].get<double>());
    ++it;
  }
  return absl::OkStatus();
}

// Prints which kernels take PyTorch's time in each mode that gave a rate.
absl::Status ProfileTorch(const Settings& settings, const std::string& model, const Rates& rates) {
  constexpr int kSteps = 5;
  const size_t rows = absl::GetFlag(FLAGS_torch_profile);
  if (rows == 0 || settings.torch == nullptr) return absl::OkStatus();
  for (const auto& [mode, rate] : rates.torch) {
    const absl::StatusOr<nlohmann::json> answer =
        settings.torch->Ask(absl::StrCat("profile ", model, " ", rates.batch, " ", mode, " ",
                                         absl::GetFlag(FLAGS_torch_optimizer), " ", kSteps),
                            absl::GetFlag(FLAGS_torch_timeout));
    std::cout << "  PyTorch " << mode << ", batch " << rates.batch << ", by kernel: ";
    if (absl::IsFailedPrecondition(answer.status())) {
      std::cout << answer.status().message() << std::endl;
      continue;
    }
    PP_RETURN_IF_ERROR(answer.status());
    const nlohmann::json& kernels = (*answer)["kernels"];
    double total = 0.0;
    for (const nlohmann::json& kernel : kernels) total += kernel["ms"].get<double>();
    std::cout << absl::StrFormat("%.3f ms per step, %d kernels\n", total, kernels.size());
    for (size_t i = 0; i < std::min(rows, kernels.size()); ++i) {
      const double milliseconds = kernels[i]["ms"].get<double>();
      std::cout << absl::StrFormat("  %9.4f ms %5.1f%% %6.1f calls  %.120s\n", milliseconds,
                                   total > 0.0 ? 100.0 * milliseconds / total : 0.0,
                                   kernels[i]["calls"].get<double>(),
                                   kernels[i]["name"].get<std::string>());
    }
    std::cout << std::flush;
  }
  return absl::OkStatus();
}

// The sides alternate, so that a change of the GPU's clock affects both.
absl::StatusOr<Rates> MeasureRates(const Settings& settings, const std::string& model,
                                   int64_t batch, DeviceStep* step) {
  const int steps = absl::GetFlag(FLAGS_steps);
  std::map<std::string, std::vector<double>> torch;
  if (settings.torch != nullptr) {
    for (const std::string& mode : absl::GetFlag(FLAGS_torch_modes)) torch[mode];
  }
  PP_RETURN_IF_ERROR(step->Measure(std::min(steps, 20)).status());
  std::vector<double> ours;
  for (int repeat = 0; repeat < absl::GetFlag(FLAGS_repeats); ++repeat) {
    PP_ASSIGN_OR_RETURN(const double milliseconds, step->Measure(steps));
    ours.push_back(1e3 * batch / milliseconds);
    PP_RETURN_IF_ERROR(AskTorch(settings, model, batch, &torch));
  }
  Rates rates{batch, Median(ours), {}};
  const auto [least, most] = std::minmax_element(ours.begin(), ours.end());
  std::cout << absl::StrFormat(
      "  batch %d: ours %.0f images/s (%.0f to %.0f), %.2f ms, %.2f GiB of activations", batch,
      rates.ours, *least, *most, 1e3 * batch / rates.ours, step->arena_bytes() / 1073741824.0);
  for (const auto& [mode, values] : torch) {
    rates.torch[mode] = Median(values);
    std::cout << absl::StrFormat("; PyTorch %s %.0f images/s, ratio %.2f", mode, rates.torch[mode],
                                 rates.ours / rates.torch[mode]);
  }
  std::cout << std::endl;
  // A line for programs to read.
  std::cout << "  result: net=" << model << " batch=" << batch
            << absl::StrFormat(" ours=%.1f", rates.ours);
  for (const auto& [mode, rate] : rates.torch) {
    std::cout << absl::StrFormat(" %s=%.1f", mode, rate);
  }
  std::cout << std::endl;
  return rates;
}

void PrintBest(const std::vector<Rates>& all) {
  if (all.size() < 2) return;
  const Rates* ours = nullptr;
  double torch = 0.0;
  std::string torch_case;
  for (const Rates& rates : all) {
    if (ours == nullptr || rates.ours > ours->ours) ours = &rates;
    for (const auto& [mode, rate] : rates.torch) {
      if (rate <= torch) continue;
      torch = rate;
      torch_case = absl::StrCat(mode, ", batch ", rates.batch);
    }
  }
  std::cout << absl::StrFormat("  best: ours %.0f images/s at batch %d", ours->ours, ours->batch);
  if (torch > 0.0) {
    std::cout << absl::StrFormat("; PyTorch %.0f images/s (%s), ratio %.2f", torch, torch_case,
                                 ours->ours / torch);
  }
  std::cout << std::endl;
}

absl::Status CompareLosses(const Settings& settings, const BenchNetwork& network) {
  const int steps = absl::GetFlag(FLAGS_losses);
  if (steps == 0) return absl::OkStatus();
  const BenchBatch batch = MakeBenchBatch(network.spec, absl::GetFlag(FLAGS_losses_batch));
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceStep> step,
                      DeviceStep::Create(network, batch, settings.precision, settings.device));
  PP_ASSIGN_OR_RETURN(const std::vector<double> ours, FirstLosses(network, {}, steps, step.get()));
  std::cout << absl::StrFormat("  first %d losses, batch %d: ours %.4f to %.4f", steps,
                               batch.samples, ours.front(), ours.back());
  if (settings.torch == nullptr) {
    std::cout << std::endl;
    return absl::OkStatus();
  }
  const std::string path =
      (std::filesystem::temp_directory_path() / absl::StrCat("gpu_step_", getpid(), ".bin"))
          .string();
  PP_RETURN_IF_ERROR(WriteStart(network, {}, batch, path));
  const absl::StatusOr<nlohmann::json> answer =
      settings.torch->Ask(absl::StrCat("losses ", network.name, " ", steps, " ", path),
                          absl::GetFlag(FLAGS_torch_timeout));
  std::filesystem::remove(path);
  PP_RETURN_IF_ERROR(answer.status());
  const std::vector<double> torch = (*answer)["losses"].get<std::vector<double>>();
  double largest = 0.0, our_sum = 0.0, their_sum = 0.0;
  for (int i = 0; i < steps; ++i) {
    our_sum += ours[i];
    their_sum += torch[i];
    const double difference = std::abs(ours[i] - torch[i]) / torch[i];
    // A loss that is not finite makes the comparison fail.
    largest = std::max(largest, std::isfinite(difference) ? difference : HUGE_VAL);
  }
  // Single losses drift apart as rounding errors accumulate. If the means agree, both sides learn
  // alike.
  const double of_means = std::abs(our_sum - their_sum) / their_sum;
  std::cout << absl::StrFormat(
                   "; PyTorch %.4f to %.4f; the means differ by %.2f %%, single ones by up to %.2f "
                   "%%\n  losses: net=%s first=%.5f mean=%.5f largest=%.5f",
                   torch.front(), torch.back(), 100.0 * of_means, 100.0 * largest, network.name,
                   std::abs(ours[0] - torch[0]) / torch[0], of_means, largest)
            << std::endl;
  return absl::OkStatus();
}

absl::Status RunNetwork(const Settings& settings, const std::string& model) {
  PP_ASSIGN_OR_RETURN(const BenchNetwork network, MakeBenchNetwork(OptionsFor(model)));
  std::cout << model << ", " << network.spec.input.height << "x" << network.spec.input.width << ", "
            << network.spec.num_classes << " classes" << std::endl;
  std::vector<int64_t> batches = settings.batches;
  if (batches.empty()) batches.push_back(model == "mobilenet_v2" ? 256 : 128);
  const std::vector<float> variables = InitialVariables(network);
  const std::string table = absl::GetFlag(FLAGS_table);
  std::vector<Rates> all;
  for (const int64_t batch : batches) {
    const absl::StatusOr<std::unique_ptr<DeviceStep>> step = DeviceStep::Create(
        network, MakeBenchBatch(network.spec, batch), settings.precision, settings.device);
    if (absl::IsResourceExhausted(step.status())) {
      std::cout << "  batch " << batch << ": " << step.status().message() << std::endl;
      continue;
    }
    PP_RETURN_IF_ERROR(step.status());
    PP_RETURN_IF_ERROR((*step)->SetVariables(variables));
    PP_ASSIGN_OR_RETURN(Rates rates, MeasureRates(settings, model, batch, step->get()));
    PP_RETURN_IF_ERROR(ProfileTorch(settings, model, rates));
    all.push_back(std::move(rates));
    if (table == "none") continue;
    PP_ASSIGN_OR_RETURN(const std::vector<OperatorTime> operators,
                        (*step)->Profile(std::min(absl::GetFlag(FLAGS_steps), 11)));
    std::cout << FormatOperatorTable(
        operators, table == "kind" ? TableRows::kKind : TableRows::kLayer, settings.bandwidth);
  }
  PrintBest(all);
  // Otherwise PyTorch would keep the memory of its last batch.
  if (settings.torch != nullptr) {
    PP_RETURN_IF_ERROR(settings.torch->Ask("drop", absl::GetFlag(FLAGS_torch_timeout)).status());
  }
  return CompareLosses(settings, network);
}

absl::StatusOr<Settings> SettingsFromFlags() {
  Settings settings;
  const std::string precision = absl::GetFlag(FLAGS_precision);
  if (precision != "bf16" && precision != "fp32") {
    return UsageError(absl::StrCat("--precision is \"", precision, "\", expected bf16 or fp32"));
  }
  if (precision == "fp32") settings.precision = Precision::kFloat;
  const std::string table = absl::GetFlag(FLAGS_table);
  if (table != "layer" && table != "kind" && table != "none") {
    return UsageError(absl::StrCat("--table is \"", table, "\", expected layer, kind or none"));
  }
  for (const std::string& text : absl::GetFlag(FLAGS_batches)) {
    int64_t batch = 0;
    if (!absl::SimpleAtoi(text, &batch) || batch < 1) {
      return UsageError(absl::StrCat("--batches has \"", text, "\", expected numbers from 1"));
    }
    settings.batches.push_back(batch);
  }
  if (absl::GetFlag(FLAGS_steps) < 1 || absl::GetFlag(FLAGS_repeats) < 1 ||
      absl::GetFlag(FLAGS_losses) < 0 || absl::GetFlag(FLAGS_losses_batch) < 1 ||
      absl::GetFlag(FLAGS_bandwidth) < 0.0 || absl::GetFlag(FLAGS_torch_profile) < 0) {
    return UsageError(
        "--steps, --repeats and --losses_batch have to be at least 1, --losses, --bandwidth and "
        "--torch_profile at least 0");
  }
  if (!absl::GetFlag(FLAGS_torch).empty() && absl::GetFlag(FLAGS_torch_script).empty()) {
    return UsageError("--torch needs --torch_script, the path of gpu_step_torch.py");
  }
  return settings;
}

absl::StatusOr<std::unique_ptr<TorchChild>> StartTorch() {
  std::vector<std::string> command = {absl::GetFlag(FLAGS_torch),
                                      absl::GetFlag(FLAGS_torch_script),
                                      absl::StrCat("--device=", absl::GetFlag(FLAGS_torch_device)),
                                      absl::StrCat("--precision=", absl::GetFlag(FLAGS_precision)),
                                      absl::StrCat("--width=", absl::GetFlag(FLAGS_width)),
                                      absl::StrCat("--size=", absl::GetFlag(FLAGS_size)),
                                      absl::StrCat("--classes=", absl::GetFlag(FLAGS_classes))};
  PP_ASSIGN_OR_RETURN(std::unique_ptr<TorchChild> child, TorchChild::Start(command));
  PP_ASSIGN_OR_RETURN(const nlohmann::json info, child->Ask("info", absl::Minutes(2)));
  std::cout << "PyTorch " << info["torch"].get<std::string>() << " on "
            << info["device"].get<std::string>() << ", optimizer "
            << absl::GetFlag(FLAGS_torch_optimizer) << std::endl;
  return child;
}

absl::Status Run() {
  PP_ASSIGN_OR_RETURN(Settings settings, SettingsFromFlags());
  for (const std::string& model : absl::GetFlag(FLAGS_networks)) {
    PP_RETURN_IF_ERROR(MakeBenchNetwork(OptionsFor(model)).status());
  }
  GpuOptions gpu;
  gpu.gpu = absl::GetFlag(FLAGS_gpu);
  PP_ASSIGN_OR_RETURN(gpu.library, ParseGpuLibrary(absl::GetFlag(FLAGS_gpu_library)));
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenGpu(gpu));
  settings.device = device.get();
  settings.bandwidth = 1e9 * absl::GetFlag(FLAGS_bandwidth);
  if (settings.bandwidth == 0.0) {
    PP_ASSIGN_OR_RETURN(settings.bandwidth, MeasureCopyBandwidth(device.get()));
  }
  std::cout << device->description() << ", " << absl::GetFlag(FLAGS_precision)
            << absl::StrFormat(", copies within its memory: %.0f GB/s", settings.bandwidth / 1e9)
            << std::endl;
  // Writing to a child that has ended must be an error of the next request and not a signal.
  std::signal(SIGPIPE, SIG_IGN);
  std::unique_ptr<TorchChild> torch;
  if (!absl::GetFlag(FLAGS_torch).empty()) {
    PP_ASSIGN_OR_RETURN(torch, StartTorch());
    settings.torch = torch.get();
  }
  for (const std::string& model : absl::GetFlag(FLAGS_networks)) {
    PP_RETURN_IF_ERROR(RunNetwork(settings, model));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  pushpull::InitMain(argc, argv, {"Measures a training step on a GPU."});
  return pushpull::FinishMain(pushpull::Run());
}
