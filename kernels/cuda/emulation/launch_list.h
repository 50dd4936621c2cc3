// Lists the kernels of a step with their grids and parameters, for scripts/gpu/issue_bound.py,
// which counts the instructions that a GPU would issue for them.
#ifndef PUSHPULL_KERNELS_CUDA_EMULATION_LAUNCH_LIST_H_
#define PUSHPULL_KERNELS_CUDA_EMULATION_LAUNCH_LIST_H_

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/runtime.h"
#include "kernels/cuda/emulation/thread_block.h"

namespace pushpull::emulation {

// From now on work on streams does nothing, so that a step of any size takes no time, and each
// kernel that is recorded into a graph becomes a line of this file, which is replaced. The words of
// a line, separated by spaces:
// - the kernel's address minus that of the program's first byte, hexadecimal: nm lists its name;
// - the x, y and z of the grid and of the block, and the bytes of dynamic shared memory;
// - the bytes of the parameters as CUDA lays them out, hexadecimal.
// Returns false if the file cannot be written. Call it, and EndLaunchList, while no other thread
// uses the emulation.
bool StartLaunchList(const std::string& path);
void EndLaunchList();

// Whether a list has been started and not ended.
bool ListsLaunches();

struct ListedLaunch {
  const void* kernel = nullptr;
  Dim3 grid, block;
  size_t shared_bytes = 0;
  std::vector<unsigned char> parameters;
};

// Writes a line for the launch if the stream is under capture.
void ListLaunch(emulated_cuda::cudaStream_t stream, const ListedLaunch& launch);

// Returns the parameters one after another, each at a multiple of its type's alignment.
template <typename... Parameters>
std::vector<unsigned char> ParameterBytes(const Parameters&... parameters) {
  std::vector<unsigned char> bytes;
  const auto append = [&bytes](const void* data, size_t size, size_t alignment) {
    const size_t offset = (bytes.size() + alignment - 1) / alignment * alignment;
    bytes.resize(offset + size);
    std::memcpy(bytes.data() + offset, data, size);
  };
  (append(&parameters, sizeof(parameters), alignof(Parameters)), ...);
  return bytes;
}

}  // namespace pushpull::emulation

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_LAUNCH_LIST_H_
