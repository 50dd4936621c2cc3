#include "worker/model/gpu_monitor.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/dynamic_library.h"
#include "common/base/status_macros.h"

namespace pushpull {
namespace {

// The part of NVML's C interface that is used here, declared by hand because nvml.h is not needed
// to build.
using NvmlDevice = void*;
using NvmlResult = int;
constexpr NvmlResult kNvmlSuccess = 0;
constexpr NvmlResult kNvmlNotSupported = 3;
constexpr int kNvmlTemperatureOfGpu = 0;
constexpr unsigned kNvmlUuidBytes = 96;
struct NvmlUtilization {
  unsigned gpu = 0;  // percent
  unsigned memory = 0;
};
struct NvmlMemory {
  unsigned long long total = 0;  // bytes
  unsigned long long free = 0;
  unsigned long long used = 0;
};

struct Nvml {
  NvmlResult (*init)() = nullptr;
  NvmlResult (*shutdown)() = nullptr;
  NvmlResult (*device_count)(unsigned*) = nullptr;
  NvmlResult (*device_by_index)(unsigned, NvmlDevice*) = nullptr;
  NvmlResult (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlResult (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  NvmlResult (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  NvmlResult (*temperature)(NvmlDevice, int sensor, unsigned*) = nullptr;
  const char* (*error_string)(NvmlResult) = nullptr;
};

absl::StatusOr<Nvml> FindFunctions(const DynamicLibrary& library) {
  Nvml nvml;
  PP_RETURN_IF_ERROR(library.Find("nvmlInit_v2", &nvml.init));
  PP_RETURN_IF_ERROR(library.Find("nvmlShutdown", &nvml.shutdown));
  PP_RETURN_IF_ERROR(library.Find("nvmlDeviceGetCount_v2", &nvml.device_count));
  PP_RETURN_IF_ERROR(library.Find("nvmlDeviceGetHandleByIndex_v2", &nvml.device_by_index));
  PP_RETURN_IF_ERROR(library.Find("nvmlDeviceGetUUID", &nvml.uuid));
  PP_RETURN_IF_ERROR(library.Find("nvmlDeviceGetUtilizationRates", &nvml.utilization));
  PP_RETURN_IF_ERROR(library.Find("nvmlDeviceGetMemoryInfo", &nvml.memory));
  PP_RETURN_IF_ERROR(library.Find("nvmlDeviceGetTemperature", &nvml.temperature));
  PP_RETURN_IF_ERROR(library.Find("nvmlErrorString", &nvml.error_string));
  return nvml;
}

class NvmlMonitor final : public GpuMonitor {
 public:
  NvmlMonitor(std::unique_ptr<DynamicLibrary> library, const Nvml& nvml)
      : library_(std::move(library)), nvml_(nvml) {}
  ~NvmlMonitor() override { nvml_.shutdown(); }

  absl::StatusOr<GpuFigures> Read(absl::string_view uuid) override {
    PP_ASSIGN_OR_RETURN(const NvmlDevice device, FindByUuid(uuid));
    GpuFigures figures;
    NvmlUtilization utilization;
    PP_ASSIGN_OR_RETURN(const bool knows_utilization,
                        Told(uuid, nvml_.utilization(device, &utilization)));
    if (knows_utilization) figures.utilization_percent = static_cast<int>(utilization.gpu);
    NvmlMemory memory;
    PP_ASSIGN_OR_RETURN(const bool knows_memory, Told(uuid, nvml_.memory(device, &memory)));
    if (knows_memory) {
      figures.memory_used_bytes = static_cast<int64_t>(memory.used);
      figures.memory_total_bytes = static_cast<int64_t>(memory.total);
    }
    unsigned temperature = 0;
    PP_ASSIGN_OR_RETURN(const bool knows_temperature,
                        Told(uuid, nvml_.temperature(device, kNvmlTemperatureOfGpu, &temperature)));
    if (knows_temperature) figures.temperature_celsius = static_cast<int>(temperature);
    return figures;
  }

 private:
  absl::Status Unavailable(absl::string_view uuid, NvmlResult result) const {
    return absl::UnavailableError(
        absl::StrCat(uuid, " does not report its state: ", nvml_.error_string(result)));
  }

  // Returns true for an answer and false if the GPU does not support the question.
  absl::StatusOr<bool> Told(absl::string_view uuid, NvmlResult result) const {
    if (result == kNvmlSuccess) return true;
    if (result == kNvmlNotSupported) return false;
    return Unavailable(uuid, result);
  }

  absl::StatusOr<NvmlDevice> FindByUuid(absl::string_view prefix) const {
    unsigned count = 0;
    const NvmlResult result = nvml_.device_count(&count);
    if (result != kNvmlSuccess) return Unavailable(prefix, result);
    std::vector<NvmlDevice> matching;
    std::vector<std::string> uuids;
    for (unsigned i = 0; i < count; ++i) {
      NvmlDevice device = nullptr;
      char uuid[kNvmlUuidBytes] = "";
      // Skip a GPU that fell off the bus: the others must stay readable.
      if (nvml_.device_by_index(i, &device) != kNvmlSuccess) continue;
      if (nvml_.uuid(device, uuid, sizeof(uuid)) != kNvmlSuccess) continue;
      uuids.push_back(uuid);
      if (!prefix.empty() && absl::StartsWith(uuid, prefix)) matching.push_back(device);
    }
    if (matching.size() == 1) return matching[0];
    return absl::NotFoundError(absl::StrCat(matching.size(), " GPUs are called \"", prefix,
                                            "\", expected one of ", absl::StrJoin(uuids, ", ")));
  }

  const std::unique_ptr<DynamicLibrary> library_;
  const Nvml nvml_;
};

}  // namespace

std::string FormatGpuFigures(const GpuFigures& figures) {
  std::string text;
  if (figures.utilization_percent) {
    absl::StrAppendFormat(&text, " %d %%", *figures.utilization_percent);
  }
  if (figures.memory_used_bytes && figures.memory_total_bytes) {
    absl::StrAppendFormat(&text, " %.1f/%.1f GiB", *figures.memory_used_bytes / 1073741824.0,
                          *figures.memory_total_bytes / 1073741824.0);
  }
  if (figures.temperature_celsius) {
    absl::StrAppendFormat(&text, " %d C", *figures.temperature_celsius);
  }
  return text.empty() ? text : absl::StrCat("GPU", text);
}

absl::StatusOr<std::unique_ptr<GpuMonitor>> GpuMonitor::Open(const std::string& library) {
  PP_ASSIGN_OR_RETURN(std::unique_ptr<DynamicLibrary> loaded, DynamicLibrary::Open(library));
  PP_ASSIGN_OR_RETURN(const Nvml nvml, FindFunctions(*loaded));
  const NvmlResult result = nvml.init();
  if (result != kNvmlSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat(library, " does not start: ", nvml.error_string(result)));
  }
  return std::make_unique<NvmlMonitor>(std::move(loaded), nvml);
}

}  // namespace pushpull
