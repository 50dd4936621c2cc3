// The suite can fail: each rule of the protocol is broken on purpose, and random schedules, as many
// as run by default, have to notice.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/ps_server/simulator/simulator.h"

namespace pushpull::sim {
namespace {

constexpr uint64_t kSchedules = 700;  // per mode, as in random_schedules_test.cc

struct SeededBug {
  const char* name;
  Mode mode;  // where it is looked for
  std::function<void(SimConfig*)> plant;
};

void PrintTo(const SeededBug& bug, std::ostream* os) { *os << bug.name; }

std::vector<SeededBug> SeededBugs() {
  const Mode wait = Mode::kSyncWait;
  const Mode drop = Mode::kSyncDrop;
  const Mode async = Mode::kAsync;
  return {
      {"SkipTheDedupe", wait, [](SimConfig* c) { c->rules.dedupe_chunks = false; }},
      {"AckBeforeStaged", wait, [](SimConfig* c) { c->rules.require_complete = false; }},
      {"ForgetTheEpochCheck", wait, [](SimConfig* c) { c->rules.check_epoch = false; }},
      {"AcceptAnOldGrantAtTheShard", wait,
       [](SimConfig* c) { c->rules.check_grant_at_shard = false; }},
      {"AcceptAnOldGrantAtCommit", wait,
       [](SimConfig* c) { c->rules.check_grant_at_commit = false; }},
      {"CountRequestsInsteadOfReplicas", wait,
       [](SimConfig* c) { c->rules.count_replicas = false; }},
      {"SumInArrivalOrder", wait, [](SimConfig* c) { c->rules.sum_in_replica_order = false; }},
      {"ApplyTwice", wait, [](SimConfig* c) { c->rules.apply_once = false; }},
      {"ForgetToClearStaging", drop, [](SimConfig* c) { c->rules.clear_staging = false; }},
      {"IgnoreTheHighWaterMark", async, [](SimConfig* c) { c->rules.check_push_marks = false; }},
      {"ServeTheOldVersionAfterRestore", wait,
       [](SimConfig* c) { c->rules.reset_version_on_restore = false; }},
      {"KeepANewerVersionAfterRestore", wait, [](SimConfig* c) { c->restore_drops_newer = false; }},
      {"OverwriteWhatIsBeingSaved", wait,
       [](SimConfig* c) { c->rules.hold_apply_for_capture = false; }},
      {"GoOnBeforeAllShardsHaveApplied", wait,
       [](SimConfig* c) { c->rules.await_all_shards = false; }},
      {"LetAnEvictedCloneIn", wait, [](SimConfig* c) { c->rules.check_eviction = false; }},
      {"AcceptALateCommit", drop, [](SimConfig* c) { c->rules.freeze_contributors = false; }},
      {"OverlookARestartedShard", wait, [](SimConfig* c) { c->rules.check_boot_id = false; }},
      {"LetAnotherSessionIn", wait, [](SimConfig* c) { c->rules.check_session = false; }},

      // Histories: what a restart goes on from.
      {"MixHistoriesWithTheSameNumber", async,
       [](SimConfig* c) { c->rules.compare_epochs = false; }},
      {"TakeTheCheckpointWithTheHighestStep", async,
       [](SimConfig* c) { c->newest_checkpoint_by_epoch = false; }},
      {"TrainABatchAgainAfterARestart", async,
       [](SimConfig* c) {
         c->rules.restore_push_marks = c->rules.refuse_later_positions = false;
         c->take_positions_from_grants = false;
         c->keep_mapped_state = 1;
         c->move_rate = c->late_publication = 0;  // nothing is rolled back, which would show too
       }},
      {"KeepThePositionsOfVersionsThatAreGone", async,
       [](SimConfig* c) {
         c->rules.refuse_later_positions = c->take_positions_from_grants = false;
       }},
      {"LeaveAStaleBatchOut", async,
       [](SimConfig* c) { c->rules.refuse_later_positions = c->repeat_stale_batches = false; }},
      {"SaveNoPositions", async, [](SimConfig* c) { c->checkpoints_keep_marks = false; }},

      // State files. The first: a process that ends before it has recovered takes 0 == 0 for saved.
      {"RemoveTheStateBeforeServing", wait, [](SimConfig* c) { c->ask_run_state = false; }},
      {"EmptyTheStateBeforeARefusedStart", wait,
       [](SimConfig* c) { c->open_changes_nothing = false; }},
      {"ShowAVersionThatIsNotWhole", wait, [](SimConfig* c) { c->commit_when_whole = false; }},
      {"KeepChunksMadeFromOtherContributions", drop,
       [](SimConfig* c) { c->compare_ahead = false; }},

      // Workers.
      {"PushOldWeightsUnderANewVersion", drop,
       [](SimConfig* c) { c->pull_again_when_gone = false; }},
      {"MixVersionsInAPull", wait, [](SimConfig* c) { c->pull_exactly = false; }},
      {"TakeTheOldVersionForAnEarlyPull", wait, [](SimConfig* c) { c->early_pull_waits = false; }},
  };
}

class SeededBugTest : public testing::TestWithParam<SeededBug> {};

TEST_P(SeededBugTest, IsCaught) {
  for (uint64_t seed = 1; seed <= kSchedules; ++seed) {
    SimConfig config = RandomConfig(GetParam().mode, seed);
    GetParam().plant(&config);
    const SimResult result = RunSchedule(config);
    if (result.violation.empty()) continue;
    std::printf("schedule %d: %s\n", static_cast<int>(seed),
                result.violation.substr(0, result.violation.find('\n')).c_str());
    return;
  }
  FAIL() << kSchedules << " schedules did not notice";
}

std::string BugName(const testing::TestParamInfo<SeededBug>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Simulator, SeededBugTest, testing::ValuesIn(SeededBugs()), BugName);

}  // namespace
}  // namespace pushpull::sim
