// Chooses and opens the device that a program computes on, from the flags --device, --gpus,
// --precision, --gpu_memory_limit_mb, --gpu_library, --show_gpus and --cpu_isa. Thread-safe
// functions.
#ifndef PUSHPULL_WORKER_CLI_DEVICE_CHOICE_H_
#define PUSHPULL_WORKER_CLI_DEVICE_CHOICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "kernels/device.h"
#include "kernels/gpu.h"
#include "protos/parameter_server.pb.h"
#include "worker/model/network_runner.h"

namespace pushpull {

inline constexpr char kEarlierCpu[] = "cpu";

// The values of the flags. Empty values mean that the flag was not given.
struct DeviceFlags {
  std::string device;  // "cuda" or "cpu"; empty: "cuda" if `gpus` is given or there is a GPU
  // Indices or UUIDs, one per process. Empty: process i takes GPU i mod the number of GPUs.
  std::vector<std::string> gpus;
  // What an earlier process of this clone computed on: kEarlierCpu or the UUID of a GPU. The clone
  // stays on it whatever the flags above say and whichever GPUs there are now. Empty: the clone has
  // had no such process.
  std::string earlier_device;
  std::string precision;                            // "fp32" or "bf16"; empty: default_precision
  int64_t gpu_memory_limit_mb = 0;                  // for this process; 0: no limit
  std::string gpu_library = "own";                  // "auto", "own" or "vendor"
  bool show_gpus = false;                           // whether --show_gpus is given
  std::string cpu_isa = "auto";                     // as for ParseCpuIsa
  std::string library_choices_file;                 // as in GpuOptions
  Precision default_precision = Precision::kFloat;  // on a GPU; the default of the CPU is fp32
};

// CountGpus and OpenGpu of kernels/gpu.h, or the fakes of a test.
struct GpuAccess {
  absl::FunctionRef<absl::StatusOr<int>()> count;
  absl::FunctionRef<absl::StatusOr<std::unique_ptr<Device>>(const GpuOptions&)> open;
};

struct ChosenDevice {
  std::unique_ptr<Device> device;  // null: the CPU, with the instruction set ChosenCpuIsa()
  Precision precision = Precision::kFloat;
  // What the user should know: why the CPU was chosen although --device=cpu was not given, or that
  // this CPU is slow in bf16. Empty if there is nothing.
  std::string warning;
};

// Checks the flags without looking at the GPUs. It does not initialise CUDA, so a supervisor may
// call it before it starts other processes. INVALID_ARGUMENT with exit code 64: a flag is wrong, or
// flags contradict each other, such as --device=cpu and a flag that has an effect on GPUs only.
absl::Status CheckDeviceFlags(const DeviceFlags& flags);

// Opens the GPU of process `index`, or chooses the CPU, and calls UseCpuIsa. `index` is the number
// of the clone in a worker, and 0 in other programs. If neither --device nor --gpus is given and
// there is no usable GPU, the result is the CPU with a warning. flags.earlier_device overrules the
// other flags. Blocks as long as access.open does.
//
// Errors, by exit code:
//   64   CheckDeviceFlags fails, or --gpus names a GPU that is not there, or the flags request a
//        GPU of a program built without CUDA, or --cpu_isa asks for what this CPU lacks or
//        Linux withholds.
//   70   The driver is too old, CUDA does not start, or --gpu_library=vendor finds no library.
//   201  The GPU does not answer, others hold its memory, or CUDA is not ready yet, even if the
//        flags request no GPU. There is no GPU at all, but --device=cuda without --gpus requests
//        one: it may have failed, and is then not listed. With flags.earlier_device, every failure
//        to open that GPU: it could be opened before, so that a new process may succeed.
absl::StatusOr<ChosenDevice> OpenChosenDevice(const DeviceFlags& flags, int index,
                                              const GpuAccess& access);

// Returns what `chosen` computes on, for people: the GPU, or the CPU with its instruction set, and
// the precision.
std::string DescribeDevice(const ChosenDevice& chosen);

// Returns what a clone on the machine `host` tells the server. The instruction sets of x86 with
// fused multiply-adds have the same text for the rounding, since their bits are equal
// (docs/decisions/0028), except amx_bf16 in bfloat16 (0037). GPUs of one model have the same text,
// unless libraries compute there: each machine has measured for itself which algorithms are the
// fastest.
ps::Arithmetic ArithmeticOf(const ChosenDevice& chosen, absl::string_view host);

// Returns `status`, with exit code 201 attached if `device` has failed or its memory may become
// free (device_runner.h): a new process may succeed. `device` may be null.
absl::Status WithDeviceExitCode(absl::Status status, const Device* device);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLI_DEVICE_CHOICE_H_
