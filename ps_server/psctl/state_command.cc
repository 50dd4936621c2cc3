#include "ps_server/psctl/state_command.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "ps_server/store/state_folder.h"

namespace pushpull {
namespace {

const char* UseName(StateFileInfo::Use use) {
  switch (use) {
    case StateFileInfo::Use::kInUse:
      return "in use";
    case StateFileInfo::Use::kResumable:
      return "resumable";
    case StateFileInfo::Use::kAbandoned:
      return "abandoned";
    case StateFileInfo::Use::kUnknown:
      break;
  }
  return "unknown";
}

std::string VersionText(const StateFileInfo& info) {
  return info.newest_version.has_value() ? absl::StrCat(*info.newest_version) : "none";
}

std::string Table(const std::vector<StateFileInfo>& files) {
  std::string text = absl::StrFormat("%-10s %8s %7s %9s  %s\n", "use", "version", "shard", "MB",
                                     "file, train_dir");
  for (const StateFileInfo& info : files) {
    absl::StrAppendFormat(&text, "%-10s %8s %7s %9.1f  %s\n", UseName(info.use), VersionText(info),
                          info.tasks > 0 ? absl::StrCat(info.shard, "/", info.tasks) : "-",
                          info.size_bytes / 1e6, info.path);
    if (!info.train_dir.empty()) absl::StrAppend(&text, "           of ", info.train_dir, "\n");
    if (info.use == StateFileInfo::Use::kInUse) {
      absl::StrAppend(&text, "           by process ", info.pid, "\n");
    }
    if (!info.reason.empty()) absl::StrAppend(&text, "           ", info.reason, "\n");
  }
  return text;
}

std::string Json(const std::vector<StateFileInfo>& files) {
  nlohmann::json array = nlohmann::json::array();
  for (const StateFileInfo& info : files) {
    nlohmann::json file = {{"path", info.path},         {"size_bytes", info.size_bytes},
                           {"use", UseName(info.use)},  {"reason", info.reason},
                           {"run_id", info.run_id},     {"train_dir", info.train_dir},
                           {"shard", info.shard},       {"tasks", info.tasks},
                           {"newest_version", nullptr}, {"pid", info.pid}};
    if (info.newest_version.has_value()) file["newest_version"] = *info.newest_version;
    array.push_back(std::move(file));
  }
  return JsonLine(array) + "\n";
}

// Says whether a word of the command line names the file: by its path, as `psctl state list` shows
// it, or by its name in the folder.
bool IsNamed(const std::string& word, const StateFileInfo& info) {
  return word == info.path || word == FileNameOf(info.path);
}

// OK: every name is a file of the folder that no process uses.
absl::Status CheckNames(const std::vector<std::string>& names,
                        const std::vector<StateFileInfo>& files, const std::string& folder) {
  for (const std::string& name : names) {
    const auto found = std::find_if(files.begin(), files.end(),
                                    [&](const StateFileInfo& info) { return IsNamed(name, info); });
    if (found == files.end()) {
      return absl::NotFoundError(
          absl::StrCat("there is no file ", name, " in ", folder, "; see psctl state list"));
    }
    if (found->use == StateFileInfo::Use::kInUse) {
      return absl::FailedPreconditionError(absl::StrCat(found->path, " is in use by process ",
                                                        found->pid, ": stop that ps_server first"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> RunStateCommand(const PsctlCommand& command, FileSystem& files,
                                            const std::string& default_folder) {
  const bool json = command.output == PsctlCommand::Output::kJson;
  const std::string folder = command.state_dir.empty() ? default_folder : command.state_dir;
  if (!command.state_dir.empty() && absl::IsNotFound(files.List(folder).status())) {
    return absl::NotFoundError(absl::StrCat("--state_dir=", folder, ": there is no such folder"));
  }
  PP_ASSIGN_OR_RETURN(std::vector<StateFileInfo> listed, ListStateFiles(files, folder));
  if (command.kind == PsctlCommand::Kind::kStateList) {
    if (json) return Json(listed);
    return listed.empty() ? absl::StrCat("no mapped state in ", folder, "\n") : Table(listed);
  }
  PP_RETURN_IF_ERROR(CheckNames(command.state_files, listed, folder));
  PP_ASSIGN_OR_RETURN(const std::vector<StateFileInfo> removed,
                      CleanStateFiles(files, folder, [&](const StateFileInfo& info) {
                        return absl::c_any_of(command.state_files, [&](const std::string& name) {
                          return IsNamed(name, info);
                        });
                      }));
  if (json) return Json(removed);
  int64_t bytes = 0;
  for (const StateFileInfo& info : removed) bytes += info.size_bytes;
  return absl::StrFormat("removed %d files, %.1f MB\n%s", removed.size(), bytes / 1e6,
                         removed.empty() ? "" : Table(removed));
}

}  // namespace pushpull
