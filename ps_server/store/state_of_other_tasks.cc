#include "ps_server/store/state_of_other_tasks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/passing_error.h"
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

// The newest version of each shard, by number of tasks, then by shard.
using ShardVersions = std::map<int, std::map<int, uint64_t>>;

ShardVersions VersionsOf(const std::vector<StateFileInfo>& infos) {
  ShardVersions versions;
  for (const StateFileInfo& info : infos) {
    if (info.newest_version.has_value()) versions[info.tasks][info.shard] = *info.newest_version;
  }
  return versions;
}

// Returns the file with the newest version among those whose number of tasks lacks a shard; null if
// there is none.
const StateFileInfo* NewestPart(const std::vector<StateFileInfo>& infos) {
  const ShardVersions versions = VersionsOf(infos);
  const StateFileInfo* newest = nullptr;
  for (const StateFileInfo& info : infos) {
    if (!info.newest_version.has_value()) continue;
    if (static_cast<int>(versions.at(info.tasks).size()) == info.tasks) continue;
    if (newest == nullptr || *info.newest_version > *newest->newest_version) newest = &info;
  }
  return newest;
}

constexpr char kPublish[] =
    "end that server by `psctl drain` or SIGTERM, which publishes a checkpoint";

std::string InNoCheckpoint(std::optional<uint64_t> checkpoint_step) {
  return absl::StrCat(" of this run, which is in no checkpoint",
                      checkpoint_step.has_value()
                          ? absl::StrCat(" (the newest is of step ", *checkpoint_step, ")")
                          : "");
}

// Says how to do without the steps in the file `path`.
std::string GiveUp(std::optional<uint64_t> checkpoint_step, const std::string& path) {
  if (checkpoint_step.has_value()) return ", or give the later steps up by --from_checkpoint";
  return absl::StrCat(", or begin at step 0 after `psctl state clean ", FileNameOf(path),
                      " --state_dir=", FolderOf(path), "`");
}

std::string TasksText(int tasks) { return absl::StrCat(tasks, tasks == 1 ? " task" : " tasks"); }

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
  std::optional<WholeState> newest;
  for (const auto& [tasks, shards] : VersionsOf(infos)) {
    if (static_cast<int>(shards.size()) != tasks) continue;
    uint64_t version = shards.begin()->second;
    for (const auto& [shard, reached] : shards) version = std::min(version, reached);
    if (!newest.has_value() || version > newest->version) newest = WholeState{tasks, version};
  }
  return newest;
}

absl::Status CheckForLostSteps(const std::vector<StateFileInfo>& infos, int tasks,
                               std::optional<uint64_t> checkpoint_step) {
  const uint64_t durable_step = checkpoint_step.value_or(0);
  const std::string in_no_checkpoint = InNoCheckpoint(checkpoint_step);
  const std::optional<WholeState> whole = NewestWholeState(infos);
  if (whole.has_value() && whole->version > durable_step) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the mapped state in ", FolderOf(infos.front().path), " holds step ", whole->version,
        in_no_checkpoint, ". It was kept with --tasks=", whole->tasks,
        " and cannot be divided over ", TasksText(tasks), ": start with --tasks=", whole->tasks,
        " and ", kPublish, checkpoint_step.has_value() ? GiveUp(checkpoint_step, "") : ""));
  }
  const StateFileInfo* const part = NewestPart(infos);
  if (part == nullptr || *part->newest_version <= durable_step) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      part->path, " holds step ", *part->newest_version, " of shard ", part->shard,
      in_no_checkpoint, ". It was kept with --tasks=", part->tasks, " and cannot be divided over ",
      TasksText(tasks),
      "; not all other shards are in this folder, so their tasks may have run on other machines: "
      "start with --tasks=",
      part->tasks, " on the same machines and ", kPublish, GiveUp(checkpoint_step, part->path)));
}

absl::Status CheckForUnfitSteps(const VariableStore& store,
                                std::optional<uint64_t> checkpoint_step) {
  const std::optional<uint64_t> version = store.unfit_version();
  if (version.value_or(0) <= checkpoint_step.value_or(0)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      store.path(), " holds step ", *version, InNoCheckpoint(checkpoint_step),
      ". It does not fit: ", store.fresh_reason(), ". Start with the earlier config and ", kPublish,
      GiveUp(checkpoint_step, store.path())));
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
      return Annotated(renamed, absl::StrCat("cannot rename ", info.path, " to ", aside, ": ",
                                             renamed.message()));
    }
    LOG(WARNING) << "a state file of this run with " << TasksText(info.tasks) << " is kept as "
                 << aside << ": the run goes on with another number of tasks";
  }
  return absl::OkStatus();
}

}  // namespace pushpull
