#include "worker/cli/device_choice.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/cpu_isa.h"
#include "common/base/status_macros.h"
#include "common/cli/exit_codes.h"
#include "common/cli/flag_checks.h"
#include "kernels/device_selection.h"
#include "worker/model/device_runner.h"

namespace pushpull {
namespace {

bool WantsGpu(const DeviceFlags& flags) { return flags.device == "cuda" || !flags.gpus.empty(); }

std::string FlagText(const DeviceFlags& flags) {
  return flags.gpus.empty() ? "--device=cuda"
                            : absl::StrCat("--gpus=", absl::StrJoin(flags.gpus, ","));
}

// The error of a clone that had the GPU before. Whatever it is, it may pass: a GPU that has failed
// is often not listed until it has been reset.
absl::Status EarlierGpuError(const DeviceFlags& flags, const absl::Status& error) {
  const std::string message = absl::StrCat("this clone has computed on ", flags.earlier_device,
                                           ", which cannot be used now: ", error.message());
  return WithExitCode(absl::Status(error.code(), message), kExitGpuLost);
}

absl::Status OpeningError(const DeviceFlags& flags, const absl::Status& error) {
  if (!flags.earlier_device.empty()) return EarlierGpuError(flags, error);
  const std::string message =
      absl::StrCat(WantsGpu(flags) ? FlagText(flags) + ": " : "", error.message());
  switch (error.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInvalidArgument:
      return UsageError(message);
    case absl::StatusCode::kFailedPrecondition:
      return WithExitCode(absl::FailedPreconditionError(message), kExitInternal);
    // Opening needs little memory, so that others hold it if there is none.
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
      return WithExitCode(absl::Status(error.code(), message), kExitGpuLost);
    default:
      return absl::Status(error.code(), message);
  }
}

absl::StatusOr<CpuIsa> CpuIsaOf(const DeviceFlags& flags) {
  const absl::StatusOr<CpuIsa> isa = ParseCpuIsa(flags.cpu_isa);
  if (isa.ok()) return isa;
  return UsageError(absl::StrCat("--cpu_isa=", flags.cpu_isa, ": ", isa.status().message()));
}

absl::StatusOr<Precision> PrecisionOf(const DeviceFlags& flags, Precision default_precision) {
  if (flags.precision.empty()) return default_precision;
  const absl::StatusOr<Precision> precision = ParsePrecision(flags.precision);
  if (precision.ok()) return precision;
  return UsageError(
      absl::StrCat("--precision=", flags.precision, ", ", precision.status().message()));
}

// The error of a flag that is given together with --device=cpu.
absl::Status ForGpusOnly(absl::string_view flag) {
  return UsageError(
      absl::StrCat("--device=cpu and ", flag, " contradict each other: the flag is for GPUs"));
}

// `why` says why the CPU was chosen, if the flags do not.
absl::StatusOr<ChosenDevice> ChooseCpu(const DeviceFlags& flags, absl::string_view why) {
  ChosenDevice chosen;
  PP_ASSIGN_OR_RETURN(chosen.precision, PrecisionOf(flags, Precision::kFloat));
  if (!why.empty()) {
    chosen.warning =
        absl::StrCat(why, ": computing on the CPU; --device=cpu says that this is meant");
  }
  return chosen;
}

}  // namespace

absl::Status CheckDeviceFlags(const DeviceFlags& flags) {
  if (!flags.device.empty() && flags.device != "cpu" && flags.device != "cuda") {
    return UsageError(absl::StrCat("--device=", flags.device, ", expected cuda or cpu"));
  }
  if (flags.device == "cpu" && !flags.gpus.empty()) {
    return UsageError(absl::StrCat("--device=cpu and ", FlagText(flags), " contradict each other"));
  }
  for (const std::string& gpu : flags.gpus) {
    if (gpu.empty()) return UsageError(absl::StrCat(FlagText(flags), " has an empty entry"));
  }
  PP_RETURN_IF_ERROR(PrecisionOf(flags, flags.default_precision).status());
  const absl::Status library = ParseGpuLibrary(flags.gpu_library).status();
  if (!library.ok()) return UsageError(library.message());
  PP_RETURN_IF_ERROR(CpuIsaOf(flags).status());
  PP_RETURN_IF_ERROR(CheckAtLeast("gpu_memory_limit_mb", flags.gpu_memory_limit_mb, 0));
  if (flags.device == "cpu") {
    if (flags.gpu_memory_limit_mb > 0) {
      return ForGpusOnly(absl::StrCat("--gpu_memory_limit_mb=", flags.gpu_memory_limit_mb));
    }
    if (flags.gpu_library != "own") {
      return ForGpusOnly(absl::StrCat("--gpu_library=", flags.gpu_library));
    }
    if (flags.show_gpus) return ForGpusOnly("--show_gpus");
  }
  return absl::OkStatus();
}

absl::StatusOr<ChosenDevice> OpenChosenDevice(const DeviceFlags& flags, int index,
                                              const GpuAccess& access) {
  PP_RETURN_IF_ERROR(CheckDeviceFlags(flags));
  PP_ASSIGN_OR_RETURN(const CpuIsa isa, CpuIsaOf(flags));
  UseCpuIsa(isa);
  if (flags.device == "cpu" || flags.earlier_device == kEarlierCpu) return ChooseCpu(flags, "");
  GpuOptions options;
  options.memory_limit_bytes = flags.gpu_memory_limit_mb << 20;
  PP_ASSIGN_OR_RETURN(options.library, ParseGpuLibrary(flags.gpu_library));
  options.library_choices_file = flags.library_choices_file;
  if (!flags.earlier_device.empty()) {
    options.gpu = flags.earlier_device;
  } else if (!flags.gpus.empty()) {
    if (index >= static_cast<int>(flags.gpus.size())) {
      return UsageError(absl::StrCat(FlagText(flags), " names no GPU for process ", index));
    }
    options.gpu = flags.gpus[index];
  } else {
    const absl::StatusOr<int> count = access.count();
    // An error that may pass: the GPUs are there, but cannot be used yet.
    const bool may_pass = absl::IsAborted(count.status());
    if (!count.ok() && (WantsGpu(flags) || may_pass)) return OpeningError(flags, count.status());
    if (!count.ok()) return ChooseCpu(flags, count.status().message());
    if (*count == 0 && WantsGpu(flags)) {
      // A GPU that has failed is often not listed until it has been reset.
      const std::string message =
          absl::StrCat(FlagText(flags),
                       ": there is no GPU at the moment; reset one that has failed, "
                       "or use --device=cpu if this machine has none");
      return WithExitCode(absl::AbortedError(message), kExitGpuLost);
    }
    if (*count == 0) return ChooseCpu(flags, "there is no GPU");
    options.gpu = absl::StrCat(index % *count);
  }
  absl::StatusOr<std::unique_ptr<Device>> device = access.open(options);
  if (!device.ok()) return OpeningError(flags, device.status());
  ChosenDevice chosen;
  chosen.device = std::move(device).value();
  PP_ASSIGN_OR_RETURN(chosen.precision, PrecisionOf(flags, flags.default_precision));
  return chosen;
}

std::string DescribeDevice(const ChosenDevice& chosen) {
  const std::string place = chosen.device != nullptr
                                ? chosen.device->description()
                                : absl::StrCat("the CPU (", CpuIsaName(ChosenCpuIsa()), ")");
  return absl::StrCat(place, " in ", PrecisionName(chosen.precision));
}

ps::Arithmetic ArithmeticOf(const ChosenDevice& chosen, absl::string_view host) {
  const absl::string_view precision = PrecisionName(chosen.precision);
  ps::Arithmetic arithmetic;
  if (chosen.device != nullptr) {
    // The number of the GPU is left out, because it differs between the clones of a worker.
    arithmetic.set_device(
        absl::StrCat(chosen.device->model(), " in ", precision,
                     chosen.device->uses_libraries() ? absl::StrCat(", libraries of ", host) : ""));
    arithmetic.set_rounding(arithmetic.device());
    return arithmetic;
  }
  arithmetic.set_device(DescribeDevice(chosen));
  const CpuIsa isa = ChosenCpuIsa();
  const bool in_tiles = MultipliesInTiles(isa) && chosen.precision == Precision::kBfloat16;
  const bool is_common = HasFusedMultiplyAdd(isa) && isa != CpuIsa::kNeon && !in_tiles;
  arithmetic.set_rounding(is_common ? absl::StrCat("the CPU in ", precision) : arithmetic.device());
  return arithmetic;
}

absl::Status WithDeviceExitCode(absl::Status status, const Device* device) {
  if (status.ok() || device == nullptr) return status;
  if (device->status().ok() && !MemoryMayBecomeFree(status)) return status;
  return WithExitCode(std::move(status), kExitGpuLost);
}

}  // namespace pushpull
