// Tested by tests/ps_server/monitoring/monitoring_server_test.cc.
#include "ps_server/monitoring/process_stats.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace pushpull {
namespace {

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

uint64_t Number(const std::vector<std::string>& fields, size_t i) {
  uint64_t value = 0;
  if (i >= fields.size() || !absl::SimpleAtoi(fields[i], &value)) return 0;
  return value;
}

// Unix time at which the machine started. Process start times count from it.
double BootTime() {
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(ReadAll("/proc/stat"), '\n'))) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');
    if (fields[0] == "btime") return static_cast<double>(Number(fields, 1));
  }
  return 0.0;
}

uint64_t CountDescriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  uint64_t entries = 0;
  while (readdir(folder) != nullptr) ++entries;
  closedir(folder);
  constexpr uint64_t kNotDescriptors = 3;  // ".", ".." and the descriptor of this folder
  return entries > kNotDescriptors ? entries - kNotDescriptors : 0;
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  const std::string text = ReadAll("/proc/self/stat");
  // The second field, the process name, may hold any characters, so parsing starts after it.
  // Index 0 below is field 3 of proc(5).
  const size_t name_end = text.rfind(')');
  if (name_end != std::string::npos) {
    const std::vector<std::string> fields =
        absl::StrSplit(text.substr(name_end + 1), ' ', absl::SkipEmpty());
    const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    stats.cpu_seconds = static_cast<double>(Number(fields, 11) + Number(fields, 12)) / ticks;
    stats.threads = Number(fields, 17);
    static const double boot_time = BootTime();
    stats.start_unix_seconds = boot_time + static_cast<double>(Number(fields, 19)) / ticks;
    stats.virtual_bytes = Number(fields, 20);
    stats.resident_bytes = Number(fields, 21) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
  stats.open_descriptors = CountDescriptors();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_descriptors = limit.rlim_cur;
  return stats;
}

}  // namespace pushpull
