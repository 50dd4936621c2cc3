#include "worker/model/gpu_monitor.h"

#include <dlfcn.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

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

template <typename Function>
absl::Status Find(void* handle, const char* symbol, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, symbol));
  if (*function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("has no ", symbol));
}

absl::StatusOr<Nvml> FindFunctions(void* handle) {
  Nvml nvml;
  PP_RETURN_IF_ERROR(Find(handle, "nvmlInit_v2", &nvml.init));
  PP_RETURN_IF_ERROR(Find(handle, "nvmlShutdown", &nvml.shutdown));
  PP_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetCount_v2", &nvml.device_count));
  PP_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetHandleByIndex_v2", &nvml.device_by_index));
  PP_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetUUID", &nvml.uuid));
  PP_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetUtilizationRates", &nvml.utilization));
  PP_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetMemoryInfo", &nvml.memory));
  PP_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetTemperature", &nvml.temperature));
  PP_RETURN_IF_ERROR(Find(handle, "nvmlErrorString", &nvml.error_string));
  return nvml;
}

class NvmlMonitor final : public GpuMonitor {
 public:
  NvmlMonitor(void* handle, const Nvml& nvml) : handle_(handle), nvml_(nvml) {}
  ~NvmlMonitor() override {
    nvml_.shutdown();
    dlclose(handle_);
  }

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

  void* const handle_;
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
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot load ", library, ": ", dlerror()));
  }
  const absl::StatusOr<Nvml> nvml = FindFunctions(handle);
  if (!nvml.ok()) {
    dlclose(handle);
    return absl::FailedPreconditionError(absl::StrCat(library, " ", nvml.status().message()));
  }
  const NvmlResult result = nvml->init();
  if (result != kNvmlSuccess) {
    const std::string why = nvml->error_string(result);
    dlclose(handle);
    return absl::FailedPreconditionError(absl::StrCat(library, " does not start: ", why));
  }
  return std::make_unique<NvmlMonitor>(handle, *nvml);
}

}  // namespace pushpull
