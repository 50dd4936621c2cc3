#include "kernels/cuda/emulation/launch_list.h"

#include <cstdio>

namespace pushpull::emulation {
namespace {

std::FILE* list = nullptr;

}  // namespace

bool StartLaunchList(const std::string& path) {
  EndLaunchList();
  list = std::fopen(path.c_str(), "w");
  return list != nullptr;
}

void EndLaunchList() {
  if (list != nullptr) std::fclose(list);
  list = nullptr;
}

bool ListsLaunches() { return list != nullptr; }

void ListLaunch(emulated_cuda::cudaStream_t stream, const char* name, Dim3 grid, Dim3 block) {
  if (stream == nullptr || stream->capture == nullptr) return;
  std::fprintf(list, "%s\t%u\t%u\t%u\t%u\t%u\t%u\n", name, grid.x, grid.y, grid.z, block.x, block.y,
               block.z);
  std::fflush(list);
}

}  // namespace pushpull::emulation
