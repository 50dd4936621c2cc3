#include "worker/cli/device_flags.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/flag.h"

#include "common/cli/exit_codes.h"

ABSL_FLAG(std::vector<std::string>, gpus, {},
          "indices or UUIDs of the GPUs to compute on: one, or in a worker one per clone, which "
          "may name a GPU more than once; default: GPU 0, or in a worker all GPUs in turn");
ABSL_FLAG(std::string, device, "",
          "cuda or cpu; default: cuda if --gpus is given or there is a GPU");
ABSL_FLAG(std::string, precision, "",
          "precision of activations, and of their gradients in training: fp32 or bf16; default: "
          "fp32, or bf16 for a worker on a GPU. Variables and pushed gradients are fp32 in both");
ABSL_FLAG(int64_t, gpu_memory_limit_mb, 0,
          "GPU memory that each process may allocate, in MiB; 0: no limit. What CUDA and cuDNN "
          "take for themselves, several hundred MiB, comes on top");
ABSL_FLAG(std::string, cpu_isa, "auto",
          "instruction set of the CPU kernels: auto (the best that can be used here), sse4, avx2, "
          "avx512, avx512_bf16 or amx_bf16; on ARM neon. avx512_bf16 and amx_bf16 are AVX-512 with "
          "instructions for --precision=bf16. The results have the same bits with each but sse4 "
          "and, in bf16, amx_bf16");

namespace pushpull {

DeviceFlags DeviceFromFlags() {
  DeviceFlags flags;
  flags.device = absl::GetFlag(FLAGS_device);
  flags.gpus = absl::GetFlag(FLAGS_gpus);
  flags.precision = absl::GetFlag(FLAGS_precision);
  flags.gpu_memory_limit_mb = absl::GetFlag(FLAGS_gpu_memory_limit_mb);
  flags.cpu_isa = absl::GetFlag(FLAGS_cpu_isa);
  return flags;
}

absl::Status CheckFlagsOfOneDevice() {
  const DeviceFlags flags = DeviceFromFlags();
  if (flags.gpus.size() > 1) {
    return UsageError("--gpus names several GPUs, but this program uses one: name one");
  }
  return CheckDeviceFlags(flags);
}

}  // namespace pushpull
