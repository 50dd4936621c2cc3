// Checks that the simulator detects errors. Each test plants one bug that breaks a rule of the
// protocol, and one of the first kSchedules random schedules of a mode must report the violation
// that belongs to it. Other violations, such as a job that comes to a halt, do not count.
// The bugs are planted in the events and actions of the state machines, in the simulated store and
// in the simulated workers. Production code has no switches for them.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/ps_server/simulator/simulator.h"

namespace pushpull::sim {
namespace {

// The latest catch comes at schedule 1723, all others by schedule 349. A change of the random
// choices moves all of them, so the search goes on for much longer than it takes today.
constexpr uint64_t kSchedules = 7000;

struct SeededBug {
  const char* name;
  Mode mode;              // The mode of the schedules.
  const char* violation;  // What the violation says that a schedule must report.
  std::function<void(SimConfig*)> plant;
};

void PrintTo(const SeededBug& bug, std::ostream* os) { *os << bug.name; }

std::vector<SeededBug> SeededBugs() {
  const Mode wait = Mode::kSyncWait;
  const Mode drop = Mode::kSyncDrop;
  const Mode async = Mode::kAsync;
  return {
      {"SkipTheDedupe", wait, "does not hold replica",
       [](SimConfig* c) { c->bugs.count_repeated_chunks = true; }},
      {"AckBeforeStaged", wait, "does not hold replica",
       [](SimConfig* c) { c->bugs.ack_before_staged = true; }},
      {"ForgetTheEpochCheck", wait, "of another epoch",
       [](SimConfig* c) { c->bugs.ignore_epochs = true; }},
      {"AcceptAnOldGrantAtTheShard", wait, "I5: a chunk of an old grant was staged",
       [](SimConfig* c) { c->bugs.ignore_grants_of_chunks = true; }},
      {"AcceptAnOldGrantAtCommit", wait, "I5: a commit of an old grant counts",
       [](SimConfig* c) { c->bugs.ignore_grants_of_commits = true; }},
      {"CountRequestsInsteadOfReplicas", wait, "a replica is missing",
       [](SimConfig* c) { c->bugs.count_requests = true; }},
      {"SumInArrivalOrder", wait, "differs from the oracle",
       [](SimConfig* c) { c->bugs.sum_in_arrival_order = true; }},
      {"ApplyTwice", wait, "without the version before it",
       [](SimConfig* c) { c->bugs.apply_twice = true; }},
      {"ForgetToClearStaging", drop, "differs from the oracle",
       [](SimConfig* c) { c->bugs.keep_staging = true; }},
      {"IgnoreTheHighWaterMark", async, "counts twice or too late",
       [](SimConfig* c) { c->bugs.ignore_push_marks = true; }},
      {"ServeTheOldVersionAfterRestore", wait, "the store does not hold it",
       [](SimConfig* c) { c->bugs.keep_version_after_restore = true; }},
      {"KeepANewerVersionAfterRestore", wait, "without the version before it",
       [](SimConfig* c) { c->restore_drops_newer = false; }},
      {"OverwriteWhatIsBeingSaved", wait, "holds no version of the oracle",
       [](SimConfig* c) { c->bugs.overwrite_what_is_saved = true; }},
      {"SaveAFailedCheckpointOnlyOnce", wait, "the final checkpoint could not be written",
       [](SimConfig* c) {
         c->bugs.ignore_attempts = true;
         c->disk_failure = 0.4;
       }},
      {"GoOnBeforeAllShardsHaveApplied", wait, "I8: no progress",
       [](SimConfig* c) { c->bugs.await_first_shard_only = true; }},
      {"LetAnEvictedCloneIn", wait, "an evicted clone",
       [](SimConfig* c) { c->bugs.forget_evictions = true; }},
      {"ForgetTheScaledNumber", wait, "but the job was scaled to",
       [](SimConfig* c) {
         c->keep_scaled_number = false;
         c->scale_rate = 2;
       }},
      {"AcceptAnOldDivisionAtCommit", wait, "I5: a commit of an old grant counts",
       [](SimConfig* c) {
         c->bugs.ignore_grants_of_commits = true;
         c->scale_rate = 2;
         // Nothing but a division gives new grants.
         c->worker_crash_rate = c->worker_pause_rate = c->partition_rate = c->evict_rate = 0;
         c->crash_at_action = c->loss = c->long_delay = c->drain_rate = 0;
       }},
      {"AcceptALateCommit", drop, "was accepted, but is not in the step",
       [](SimConfig* c) { c->bugs.accept_late_commits = true; }},
      {"OverlookARestartedShard", wait, "I8: no progress",
       [](SimConfig* c) { c->bugs.overlook_restarts = true; }},
      {"LetAnotherSessionIn", wait, "replaced another process that is still alive",
       [](SimConfig* c) { c->bugs.ignore_sessions = true; }},

      // Bugs in the choice of the version that a restarted job continues from.
      {"MixHistoriesWithTheSameNumber", async, "I3: recovery lost the durable step",
       [](SimConfig* c) {
         c->bugs.ignore_epochs_of_versions = true;
         // Some shards lose their memory and others keep theirs, so that the job rolls back often.
         c->crash_at_action = 0.01;
         c->keep_mapped_state = 0.5;
       }},
      {"TakeTheCheckpointWithTheHighestStep", async, "I3: recovery lost the durable step",
       [](SimConfig* c) {
         c->newest_checkpoint_by_epoch = false;
         // A frozen server can publish a checkpoint of an older epoch with a higher step, if its
         // successors leave the files there.
         c->remove_pending_first = false;
         c->late_publication = 0.5;
       }},
      {"LetAFrozenServerPublishAfterAllItsSuccessors", async, "I6: the durable step went back",
       [](SimConfig* c) {
         c->remove_pending_first = false;
         c->late_publication = 0.5;
       }},
      {"TrainABatchAgainAfterARestart", async, "counts twice or too late",
       [](SimConfig* c) {
         c->bugs.forget_marks_at_restore = c->bugs.accept_later_positions = true;
         c->take_positions_from_grants = false;
         c->keep_mapped_state = 1;
         // There are no rollbacks, because they would also reveal the bug.
         c->move_rate = c->late_publication = 0;
       }},
      {"KeepThePositionsOfVersionsThatAreGone", async, "is skipped",
       [](SimConfig* c) {
         c->bugs.accept_later_positions = true;
         c->take_positions_from_grants = false;
       }},
      {"LeaveAStaleBatchOut", async, "is skipped",
       [](SimConfig* c) {
         c->bugs.accept_later_positions = true;
         c->repeat_stale_batches = false;
       }},
      {"SaveNoPositions", async, "I10: batch",
       [](SimConfig* c) { c->checkpoints_keep_marks = false; }},

      // Bugs in the handling of state files. The first bug lets a process that ends before recovery
      // take its state for saved, because its version and its durable step are both 0.
      {"RemoveTheStateBeforeServing", wait, "I9: the state file",
       [](SimConfig* c) { c->ask_run_state = false; }},
      {"EmptyTheStateBeforeARefusedStart", wait, "I9: the state file",
       [](SimConfig* c) { c->open_changes_nothing = false; }},
      {"ShowAVersionThatIsNotWhole", wait, "from different histories",
       [](SimConfig* c) { c->commit_when_whole = false; }},
      {"KeepChunksMadeFromOtherContributions", drop, "differs from the oracle",
       [](SimConfig* c) { c->compare_ahead = false; }},

      // Bugs of workers.
      {"PushOldWeightsUnderANewVersion", drop, "differs from the oracle",
       [](SimConfig* c) { c->pull_again_when_gone = false; }},
      {"ComputeThePartOfAnOldDivision", wait, "of another division",
       [](SimConfig* c) {
         c->take_parts_from_grants = false;
         c->scale_rate = 2;
       }},
      {"MixVersionsInAPull", wait, "differs from the oracle",
       [](SimConfig* c) { c->pull_exactly = false; }},
      {"TakeTheOldVersionForAnEarlyPull", wait, "differs from the oracle",
       [](SimConfig* c) { c->early_pull_waits = false; }},
  };
}

class SeededBugTest : public testing::TestWithParam<SeededBug> {};

TEST_P(SeededBugTest, IsCaught) {
  std::string last_other;
  for (uint64_t seed = 1; seed <= kSchedules; ++seed) {
    SimConfig config = RandomConfig(GetParam().mode, seed);
    GetParam().plant(&config);
    const SimResult result = RunSchedule(config);
    if (result.violation.empty()) continue;
    if (result.violation.find(GetParam().violation) == std::string::npos) {
      last_other = result.violation;
      continue;
    }
    std::printf("schedule %d: %s\n", static_cast<int>(seed),
                result.violation.substr(0, result.violation.find('\n')).c_str());
    return;
  }
  FAIL() << kSchedules << " schedules ran without a violation that says \"" << GetParam().violation
         << "\". Another one: " << last_other;
}

std::string BugName(const testing::TestParamInfo<SeededBug>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Simulator, SeededBugTest, testing::ValuesIn(SeededBugs()), BugName);

}  // namespace
}  // namespace pushpull::sim
