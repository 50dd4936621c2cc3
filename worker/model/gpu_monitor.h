// Reads a GPU's utilisation, memory and temperature, as nvidia-smi shows them. Uses NVIDIA's
// management library (NVML), which comes with the driver. It is loaded at run time, so a build
// needs nothing from it.
#ifndef PUSHPULL_WORKER_MODEL_GPU_MONITOR_H_
#define PUSHPULL_WORKER_MODEL_GPU_MONITOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// One reading. A figure that the GPU does not report is absent; in a virtual machine that may be
// any of them.
struct GpuFigures {
  std::optional<int> utilization_percent;    // share of the last moments in which a kernel ran
  std::optional<int64_t> memory_used_bytes;  // by all processes together
  std::optional<int64_t> memory_total_bytes;
  std::optional<int> temperature_celsius;
};

// Returns for example "GPU 97 % 71.2/139.8 GiB 54 C". Absent figures are left out; the text is
// empty if all of them are absent.
std::string FormatGpuFigures(const GpuFigures& figures);

// Thread-compatible: callers that share a monitor must synchronise their calls. The destructor
// shuts the library down.
class GpuMonitor {
 public:
  static constexpr char kLibrary[] = "libnvidia-ml.so.1";

  virtual ~GpuMonitor() = default;

  // Blocks for about a millisecond. `uuid` names the GPU ("GPU-5a3c..."); a unique prefix is
  // enough. There are no indices here, because NVML counts all GPUs of the host, while CUDA counts
  // those of CUDA_VISIBLE_DEVICES, in that order or in the order of CUDA_DEVICE_ORDER.
  // NOT_FOUND: no GPU, or more than one, matches. UNAVAILABLE: the GPU does not answer (it fell off
  // the bus, or the driver was unloaded).
  virtual absl::StatusOr<GpuFigures> Read(absl::string_view uuid) = 0;

  // NOT_FOUND: the library does not load, so there is no driver and nothing to report.
  // FAILED_PRECONDITION: the file is not that library, or the library does not start.
  static absl::StatusOr<std::unique_ptr<GpuMonitor>> Open(const std::string& library = kLibrary);
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_GPU_MONITOR_H_
