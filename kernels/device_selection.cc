#include "kernels/device_selection.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pushpull {
namespace {

std::string ListDevices(const std::vector<ListedDevice>& devices) {
  if (devices.empty()) return "this machine has none";
  std::vector<std::string> lines;
  for (size_t i = 0; i < devices.size(); ++i) {
    lines.push_back(absl::StrCat(i, ": ", devices[i].name, " (", devices[i].uuid, ")"));
  }
  return absl::StrCat("this machine has ", absl::StrJoin(lines, ", "));
}

// Returns what follows "GPU-", or "MIG-", which nvidia-smi prints before the UUID of a part of a
// GPU; all of `uuid` if it begins with neither.
absl::string_view WithoutPrefix(absl::string_view uuid) {
  for (const absl::string_view prefix : {"GPU-", "MIG-"}) {
    if (absl::StartsWithIgnoreCase(uuid, prefix)) return uuid.substr(prefix.size());
  }
  return uuid;
}

}  // namespace

std::string FormatUuid(const unsigned char bytes[16]) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    absl::StrAppend(&text, absl::Hex(bytes[i], absl::kZeroPad2));
  }
  return text;
}

absl::StatusOr<int> SelectDevice(const std::vector<ListedDevice>& devices, const std::string& gpu) {
  int index = -1;
  if (absl::SimpleAtoi(gpu, &index)) {
    if (index >= 0 && index < static_cast<int>(devices.size())) return index;
    return absl::NotFoundError(absl::StrCat("there is no GPU ", gpu, ": ", ListDevices(devices)));
  }
  const absl::string_view wanted = WithoutPrefix(gpu);
  const bool is_uuid = wanted.size() < gpu.size();
  int found = -1;
  for (int i = 0; i < static_cast<int>(devices.size()); ++i) {
    if (!is_uuid || !absl::StartsWithIgnoreCase(WithoutPrefix(devices[i].uuid), wanted)) continue;
    if (found >= 0) {
      return absl::NotFoundError(
          absl::StrCat("'", gpu, "' begins the UUID of several GPUs: ", ListDevices(devices)));
    }
    found = i;
  }
  if (found >= 0) return found;
  return absl::NotFoundError(absl::StrCat(
      "there is no GPU '", gpu, "', expected an index or a UUID: ", ListDevices(devices)));
}

absl::StatusOr<GpuLibrary> ParseGpuLibrary(absl::string_view text) {
  if (text == "own") return GpuLibrary::kOwn;
  if (text == "auto") return GpuLibrary::kAuto;
  if (text == "vendor") return GpuLibrary::kVendor;
  return absl::InvalidArgumentError(
      absl::StrCat("--gpu_library=", text, ", expected auto, own or vendor"));
}

}  // namespace pushpull
