#include "worker/cli/device_choice.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/cpu_isa.h"
#include "common/base/status_macros.h"
#include "common/cli/exit_codes.h"
#include "kernels/device_selection.h"

namespace pushpull {
namespace {

bool WantsGpu(const DeviceFlags& flags) { return flags.device == "cuda" || !flags.gpus.empty(); }

std::string FlagText(const DeviceFlags& flags) {
  return flags.gpus.empty() ? "--device=cuda"
                            : absl::StrCat("--gpus=", absl::StrJoin(flags.gpus, ","));
}

absl::Status OpeningError(const DeviceFlags& flags, const absl::Status& error) {
  const std::string message = absl::StrCat(FlagText(flags), ": ", error.message());
  switch (error.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInvalidArgument:
      return UsageError(message);
    case absl::StatusCode::kFailedPrecondition:
      return WithExitCode(absl::FailedPreconditionError(message), kExitInternal);
    case absl::StatusCode::kAborted:
      return WithExitCode(absl::AbortedError(message), kExitGpuLost);
    default:
      return absl::Status(error.code(), message);
  }
}

absl::StatusOr<CpuIsa> CpuIsaOf(const DeviceFlags& flags) {
  const absl::StatusOr<CpuIsa> isa = ParseCpuIsa(flags.cpu_isa);
  if (isa.ok()) return isa;
  return UsageError(absl::StrCat("--cpu_isa=", flags.cpu_isa, ": ", isa.status().message()));
}

absl::StatusOr<ChosenDevice> ChooseCpu(const DeviceFlags& flags, std::string warning) {
  if (flags.precision == "bf16") {
    return UsageError(absl::StrCat("--precision=bf16 needs a GPU, the CPU computes in fp32 only",
                                   warning.empty() ? "" : ": ", warning));
  }
  ChosenDevice chosen;
  chosen.warning = std::move(warning);
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
  if (!flags.precision.empty() && flags.precision != "fp32" && flags.precision != "bf16") {
    return UsageError(absl::StrCat("--precision=", flags.precision, ", expected fp32 or bf16"));
  }
  const absl::Status library = ParseGpuLibrary(flags.gpu_library).status();
  if (!library.ok()) return UsageError(library.message());
  PP_RETURN_IF_ERROR(CpuIsaOf(flags).status());
  if (flags.device == "cpu") PP_RETURN_IF_ERROR(ChooseCpu(flags, "").status());
  if (flags.gpu_memory_limit_mb < 0) {
    return UsageError(
        absl::StrCat("--gpu_memory_limit_mb=", flags.gpu_memory_limit_mb, ", expected at least 0"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ChosenDevice> OpenChosenDevice(const DeviceFlags& flags, int index,
                                              const GpuAccess& access) {
  PP_RETURN_IF_ERROR(CheckDeviceFlags(flags));
  PP_ASSIGN_OR_RETURN(const CpuIsa isa, CpuIsaOf(flags));
  UseCpuIsa(isa);
  if (flags.device == "cpu") return ChooseCpu(flags, "");
  GpuOptions options;
  options.memory_limit_bytes = flags.gpu_memory_limit_mb << 20;
  PP_ASSIGN_OR_RETURN(options.library, ParseGpuLibrary(flags.gpu_library));
  options.library_choices_file = flags.library_choices_file;
  if (!flags.gpus.empty()) {
    if (index >= static_cast<int>(flags.gpus.size())) {
      return UsageError(absl::StrCat(FlagText(flags), " names no GPU for process ", index));
    }
    options.gpu = flags.gpus[index];
  } else {
    const absl::StatusOr<int> count = access.count();
    if (!count.ok() && WantsGpu(flags)) return OpeningError(flags, count.status());
    if (!count.ok()) return ChooseCpu(flags, std::string(count.status().message()));
    if (*count == 0 && WantsGpu(flags)) {
      return UsageError(absl::StrCat(FlagText(flags), ": there is no GPU; use --device=cpu"));
    }
    if (*count == 0) return ChooseCpu(flags, "there is no GPU");
    options.gpu = absl::StrCat(index % *count);
  }
  absl::StatusOr<std::unique_ptr<Device>> device = access.open(options);
  if (!device.ok()) return OpeningError(flags, device.status());
  ChosenDevice chosen;
  chosen.device = std::move(device).value();
  chosen.precision = flags.default_precision;
  if (flags.precision == "fp32") chosen.precision = Precision::kFloat;
  if (flags.precision == "bf16") chosen.precision = Precision::kBfloat16;
  return chosen;
}

absl::Status WithDeviceExitCode(absl::Status status, const Device* device) {
  if (status.ok() || device == nullptr || device->status().ok()) return status;
  return WithExitCode(std::move(status), kExitGpuLost);
}

}  // namespace pushpull
