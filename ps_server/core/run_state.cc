#include "ps_server/core/run_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace pushpull {

std::vector<RunStateAction> RunState::Handle(const RunStateEvent& event) {
  actions_.clear();
  if (!ended_) {
    std::visit([this](const auto& e) { On(e); }, event);
  }
  return std::exchange(actions_, {});
}

bool RunState::all_restored() const {
  return std::all_of(adopted_.begin(), adopted_.end(), [](bool adopted) { return adopted; });
}

void RunState::On(const run_state_event::ShardRestored& event) {
  CHECK_LT(static_cast<size_t>(event.shard), adopted_.size());
  if (adopted_[event.shard]) return;  // a failover restored it again; its file has its name
  actions_.push_back({.kind = RunStateAction::Kind::kAdoptStateFile, .shard = event.shard});
}

void RunState::On(const run_state_event::StateFileAdopted& event) {
  CHECK_LT(static_cast<size_t>(event.shard), adopted_.size());
  adopted_[event.shard] = true;
}

void RunState::On(const run_state_event::JobRestored&) {
  CHECK(all_restored()) << "the coordinator serves before the shards of its process are restored";
  if (written_) return;
  written_ = true;
  actions_.push_back({.kind = RunStateAction::Kind::kWriteTrainDir});
}

void RunState::On(const run_state_event::Ending& event) {
  CHECK_EQ(event.newest_versions.size(), adopted_.size());
  ended_ = true;
  std::string reason = WhyKeep(event);
  const auto kind = reason.empty() ? RunStateAction::Kind::kRemoveStateFiles
                                   : RunStateAction::Kind::kKeepStateFiles;
  actions_.push_back({.kind = kind, .reason = std::move(reason)});
}

std::string RunState::WhyKeep(const run_state_event::Ending& event) const {
  if (!all_restored()) return "this process ends before it has recovered";
  // All files or none: a job can only continue from a version that every shard holds.
  for (const std::optional<uint64_t>& newest : event.newest_versions) {
    // Version 0 can be made again from the config, or from the checkpoint of step 0 if the model is
    // external: no step has been applied to it.
    if (newest.value_or(0) == 0) continue;
    if (!event.verified_step.has_value()) {
      return absl::StrCat("version ", *newest, " is in no checkpoint that is verified");
    }
    if (*newest > *event.verified_step) {
      return absl::StrCat("version ", *newest,
                          " is newer than the newest verified checkpoint, which is of step ",
                          *event.verified_step);
    }
  }
  return "";
}

}  // namespace pushpull
