// Tested by tests/ps_server/core/coordinator_test.cc.
#include "ps_server/core/step_commits.h"

#include <algorithm>
#include <utility>

namespace pushpull {

void StepCommits::Open(uint64_t step) {
  step_ = step;
  first_commit_ = absl::InfiniteDuration();
  commits_.clear();
}

const ReplicaCommit* StepCommits::Find(uint32_t replica) const {
  const auto it = commits_.find(replica);
  return it == commits_.end() ? nullptr : &it->second;
}

void StepCommits::Add(uint32_t replica, ReplicaCommit commit, absl::Duration now) {
  if (commits_.empty()) first_commit_ = now;
  commit.time = now;
  commits_.emplace(replica, std::move(commit));
}

absl::Duration StepCommits::FirstCommitOfOthers(uint32_t worker) const {
  absl::Duration first = absl::InfiniteDuration();
  for (const auto& [replica, commit] : commits_) {
    if (commit.worker_id != worker) first = std::min(first, commit.time);
  }
  return first;
}

uint32_t StepCommits::num_void() const {
  uint32_t count = 0;
  for (const auto& [replica, commit] : commits_) count += commit.info.samples() == 0;
  return count;
}

std::vector<ps::Contribution> StepCommits::Contributions() const {
  std::vector<ps::Contribution> contributions;
  for (const auto& [replica, commit] : commits_) {
    if (commit.info.samples() == 0) continue;
    ps::Contribution contribution;
    contribution.set_replica(replica);
    contribution.set_grant(commit.grant);
    contribution.set_samples(commit.info.samples());
    contributions.push_back(contribution);
  }
  return contributions;
}

std::vector<coordinator_action::StepApplied::Part> StepCommits::Parts() const {
  std::vector<coordinator_action::StepApplied::Part> parts;
  for (const auto& [replica, commit] : commits_) {
    parts.push_back({replica,
                     commit.worker_id,
                     commit.info.samples(),
                     {commit.info.metrics().begin(), commit.info.metrics().end()}});
  }
  return parts;
}

}  // namespace pushpull
