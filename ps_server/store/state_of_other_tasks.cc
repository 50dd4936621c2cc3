#include "ps_server/store/state_of_other_tasks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

// A copy of a train_dir has the run_id of the original, but not its state.
bool IsOfFolder(const StateFileInfo& info, const StateOwner& owner) {
  if (!info.folder_identity.empty() && !owner.folder_identity.empty()) {
    return info.folder_identity == owner.folder_identity;
  }
  return info.train_dir == owner.train_dir;
}

}  // namespace

absl::StatusOr<std::vector<StateFileInfo>> FindStateOfOtherTasks(FileSystem& files,
                                                                 const std::string& folder,
                                                                 const StateOwner& owner) {
  if (folder.empty()) return std::vector<StateFileInfo>();
  PP_ASSIGN_OR_RETURN(std::vector<StateFileInfo> infos, ListStateFiles(files, folder));
  const std::string run_id = absl::BytesToHexString(owner.run_id);
  std::erase_if(infos, [&](const StateFileInfo& info) {
    return info.use == StateFileInfo::Use::kAbandoned || info.run_id != run_id ||
           info.tasks == owner.tasks || !IsOfFolder(info, owner);
  });
  return infos;
}

std::optional<WholeState> NewestWholeState(const std::vector<StateFileInfo>& infos) {
  std::map<int, std::map<int, uint64_t>> versions;  // by number of tasks, then by shard
  for (const StateFileInfo& info : infos) {
    if (info.newest_version.has_value()) {
      versions[info.tasks][info.shard] = *info.newest_version;
    }
  }
  std::optional<WholeState> newest;
  for (const auto& [tasks, shards] : versions) {
    if (static_cast<int>(shards.size()) != tasks) continue;
    uint64_t version = shards.begin()->second;
    for (const auto& [shard, reached] : shards) version = std::min(version, reached);
    if (!newest.has_value() || version > newest->version) newest = WholeState{tasks, version};
  }
  return newest;
}

absl::Status SetStateAside(FileSystem& files, const std::vector<StateFileInfo>& infos) {
  for (const StateFileInfo& info : infos) {
    if (info.use == StateFileInfo::Use::kInUse) continue;
    std::string aside = absl::StrCat(info.path, kAsideSuffix);
    for (int i = 2; files.GetInfo(aside).ok(); ++i) {
      aside = absl::StrCat(info.path, kAsideSuffix, "-", i);
    }
    const absl::Status renamed = files.Rename(info.path, aside);
    if (absl::IsNotFound(renamed)) continue;  // somebody has removed it
    if (!renamed.ok()) {
      return absl::UnavailableError(
          absl::StrCat("cannot rename ", info.path, " to ", aside, ": ", renamed.message()));
    }
    LOG(WARNING) << "a state file of this run with " << info.tasks
                 << (info.tasks == 1 ? " task" : " tasks") << " is kept as " << aside
                 << ": the run goes on with another number of tasks";
  }
  return absl::OkStatus();
}

}  // namespace pushpull
