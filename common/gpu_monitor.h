// What nvidia-smi shows of a GPU: utilisation, memory, temperature. Asks NVIDIA's management
// library, which comes with the driver and is loaded at run time; nothing of it is needed to build.
#ifndef PUSHPULL_COMMON_GPU_MONITOR_H_
#define PUSHPULL_COMMON_GPU_MONITOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// What a GPU does not tell is absent (in a virtual machine it may be silent on any of them).
struct GpuFigures {
  std::optional<int> utilization_percent;    // share of the last moments in which a kernel ran
  std::optional<int64_t> memory_used_bytes;  // by all processes
  std::optional<int64_t> memory_total_bytes;
  std::optional<int> temperature_celsius;
};

// "GPU 97 % 71.2/139.8 GiB 54 C", without what is absent; empty if all is.
std::string FormatGpuFigures(const GpuFigures& figures);

// Thread-compatible.
class GpuMonitor {
 public:
  static constexpr char kLibrary[] = "libnvidia-ml.so.1";

  virtual ~GpuMonitor() = default;

  // `gpu`: an index in the order of nvidia-smi, which is CUDA's only with
  // CUDA_DEVICE_ORDER=PCI_BUS_ID and without CUDA_VISIBLE_DEVICES; or a UUID ("GPU-5a3c...") or the
  // beginning of one, which is the same GPU everywhere. Takes about a millisecond. NOT_FOUND: no
  // such GPU, or several; UNAVAILABLE: it does not answer (it fell off, or the driver went away).
  virtual absl::StatusOr<GpuFigures> Read(absl::string_view gpu) = 0;

  // NOT_FOUND: there is no such library, so no driver, and nothing to report; FAILED_PRECONDITION:
  // it is not that library, or it could not start.
  static absl::StatusOr<std::unique_ptr<GpuMonitor>> Open(const std::string& library = kLibrary);
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_GPU_MONITOR_H_
