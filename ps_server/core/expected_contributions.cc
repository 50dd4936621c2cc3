#include "ps_server/core/expected_contributions.h"

namespace pushpull {

void ExpectedContributions::Forget() {
  samples_.clear();
  first_.reset();
}

void ExpectedContributions::NoteApplied(const ps::ApplyRequest& request) {
  first_.reset();
  if (sync_ || !request.variable_squared_norms().empty()) samples_.clear();
  if (!request.variable_squared_norms().empty()) return;
  for (const ps::Contribution& contribution : request.contributions()) {
    if (contribution.samples() > 0) samples_[contribution.replica()] = contribution.samples();
  }
}

std::vector<ExpectedContributions::Expected> ExpectedContributions::AfterChunkOf(uint32_t replica) {
  std::vector<Expected> expected;
  if (sync_) {
    for (const auto& [other, samples] : samples_) expected.push_back({other, samples});
    return expected;
  }
  const auto known = samples_.find(replica);
  if (tasks_ != 1 || known == samples_.end() || first_.value_or(replica) != replica)
    return expected;
  first_ = replica;
  expected.push_back({replica, known->second});
  return expected;
}

}  // namespace pushpull
