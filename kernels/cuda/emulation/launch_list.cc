#include "kernels/cuda/emulation/launch_list.h"

#include <cstdio>

extern "C" const char __executable_start;  // defined by the linker

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

void ListLaunch(emulated_cuda::cudaStream_t stream, const ListedLaunch& launch) {
  if (stream == nullptr || stream->capture == nullptr) return;
  const auto offset = static_cast<const char*>(launch.kernel) - &__executable_start;
  std::fprintf(list, "%zx %u %u %u %u %u %u %zu ", static_cast<size_t>(offset), launch.grid.x,
               launch.grid.y, launch.grid.z, launch.block.x, launch.block.y, launch.block.z,
               launch.shared_bytes);
  for (const unsigned char byte : launch.parameters) std::fprintf(list, "%02x", byte);
  std::fprintf(list, "\n");
  std::fflush(list);
}

}  // namespace pushpull::emulation
