// Lists the kernels of a step with their grids, for tests/scripts/launch_count_test.py.
#ifndef PUSHPULL_KERNELS_CUDA_EMULATION_LAUNCH_LIST_H_
#define PUSHPULL_KERNELS_CUDA_EMULATION_LAUNCH_LIST_H_

#include <string>

#include "kernels/cuda/emulation/runtime.h"
#include "kernels/cuda/emulation/thread_block.h"

namespace pushpull::emulation {

// From now on work on streams does nothing, so that a step of any size takes no time, and each
// kernel that is recorded into a graph becomes a line of this file, which is replaced: its name and
// the x, y and z of the grid and of the block, separated by tabs. Returns false if the file cannot
// be written. Call it, and EndLaunchList, while no other thread uses the emulation.
bool StartLaunchList(const std::string& path);
void EndLaunchList();

// Whether a list has been started and not ended.
bool ListsLaunches();

// Writes a line for the launch if the stream is under capture.
void ListLaunch(emulated_cuda::cudaStream_t stream, const char* name, Dim3 grid, Dim3 block);

}  // namespace pushpull::emulation

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_LAUNCH_LIST_H_
