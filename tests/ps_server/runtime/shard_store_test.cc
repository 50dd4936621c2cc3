// The store of a shard: a step whose chunks are made ahead and a step made at once are the same,
// bit for bit.
#include "ps_server/runtime/shard_store.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/checkpoint/manifest.h"
#include "common/model/initializers.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/one_shard_checkpoint.h"
#include "tests/testkit/optimizer_test_util.h"

namespace pushpull {
namespace {

constexpr char kRun[] = "0123456789abcdef";

JobSpec MakeJob() {
  JobSpec job = JobSpec::Create(MakeTinyConfig(""), /*sync=*/true, /*tasks=*/1);
  job.layout = MakeLargeLayout();
  job.sharding = Sharding(job.layout.total_elements(), 1);
  job.optimizer = MakeMomentum();
  return job;
}

// A store at version 0 with random weights.
class Shard {
 public:
  Shard() {
    VariableStoreOptions options;
    options.owner.run_id = kRun;
    auto variables = VariableStore::Open(options, job_.layout, job_.optimizer);
    variables_ = variables->get();
    store_ = std::make_unique<ShardStore>(&job_, 0, "", *std::move(variables), nullptr, &pool_,
                                          RestoreHooks());
    shard_action::StoreRestore restore;
    restore.source = ps::RestoreRequest::INITIAL;
    EXPECT_TRUE(store_->Restore(restore).ok());
  }

  // Returns the contributions of replicas 0 and 1. Another `draw` gives other gradients.
  std::vector<StagedContribution> Contributions(uint64_t draw) const {
    std::vector<StagedContribution> staged;
    for (const GradientContribution& cut :
         CutContributions({RandomGradient(job_.layout, 0, 16, draw),
                           RandomGradient(job_.layout, 1, 15, draw + 1000)},
                          job_.sharding, 0, 0)) {
      staged.push_back({cut.replica, cut.samples, cut.chunks});
    }
    return staged;
  }
  absl::Status Ahead(uint64_t step, uint32_t chunk,
                     const std::vector<StagedContribution>& contributions) {
    shard_action::StoreApplyAhead order{step, chunk, {}};
    for (const StagedContribution& c : contributions) {
      order.contributions.push_back({c.replica, c.samples, c.chunks[chunk]});
    }
    return store_->ApplyAhead(order);
  }
  absl::Status Apply(uint64_t step, const std::vector<StagedContribution>& contributions) {
    shard_action::StoreApply order;
    order.step = step;
    order.epoch = 1;
    order.contributions = contributions;
    return store_->Apply(order);
  }
  // Returns all vectors of the version, or nothing if the store does not hold it.
  std::vector<float> State(uint64_t version) const {
    const auto pinned = store_->Pin(version);
    if (!pinned.ok()) return {};
    const OwnedState state(job_.layout.total_elements(), job_.optimizer);
    state.CopyFrom(pinned->vectors);
    return state.Flatten();
  }

  ShardStore& store() { return *store_; }
  VariableStore& variables() { return *variables_; }
  int num_chunks() const { return job_.sharding.num_chunks(0); }

 private:
  const JobSpec job_ = MakeJob();
  ThreadPool pool_{2};
  VariableStore* variables_ = nullptr;
  std::unique_ptr<ShardStore> store_;
};

// Makes two steps with nothing made ahead.
std::vector<float> TwoStepsAtOnce() {
  Shard shard;
  EXPECT_TRUE(shard.Apply(1, shard.Contributions(1)).ok());
  EXPECT_TRUE(shard.Apply(2, shard.Contributions(2)).ok());
  return shard.State(2);
}

TEST(ShardStoreAheadTest, MakesAllChunksAheadInAnyOrder) {
  Shard shard;
  ASSERT_GT(shard.num_chunks(), 3);
  for (const uint64_t step : {1, 2}) {
    const auto contributions = shard.Contributions(step);
    for (int chunk = shard.num_chunks() - 1; chunk >= 0; --chunk) {
      EXPECT_TRUE(shard.Ahead(step, chunk, contributions).ok());
    }
    EXPECT_TRUE(shard.State(step).empty());  // invisible before the step is decided
    EXPECT_FALSE(shard.State(step - 1).empty());
    EXPECT_TRUE(shard.Apply(step, contributions).ok());
  }
  EXPECT_EQ(shard.State(2), TwoStepsAtOnce());
}

TEST(ShardStoreAheadTest, MakesMissingChunksWhenTheStepIsDecided) {
  Shard shard;
  for (const uint64_t step : {1, 2}) {
    const auto contributions = shard.Contributions(step);
    EXPECT_TRUE(shard.Ahead(step, step, contributions).ok());
    EXPECT_TRUE(shard.Apply(step, contributions).ok());
  }
  EXPECT_EQ(shard.State(2), TwoStepsAtOnce());
}

TEST(ShardStoreAheadTest, MakesChunksAgainThatCameFromOtherContributions) {
  Shard shard;
  EXPECT_TRUE(shard.Apply(1, shard.Contributions(1)).ok());
  const auto decided = shard.Contributions(2);
  auto one_of_two = decided;
  one_of_two.pop_back();
  auto weighed_otherwise = decided;
  weighed_otherwise[0].samples = 1;
  const auto given_anew = shard.Contributions(3);
  EXPECT_TRUE(shard.Ahead(2, 0, one_of_two).ok());
  EXPECT_TRUE(shard.Ahead(2, 1, weighed_otherwise).ok());
  EXPECT_TRUE(shard.Ahead(2, 2, given_anew).ok());
  EXPECT_TRUE(shard.Ahead(2, 3, decided).ok());
  EXPECT_TRUE(shard.Apply(2, decided).ok());
  EXPECT_EQ(shard.State(2), TwoStepsAtOnce());
}

TEST(ShardStoreAheadTest, RefusesAStepThatIsNotTheNext) {
  Shard shard;
  EXPECT_TRUE(shard.Apply(1, shard.Contributions(1)).ok());
  const auto contributions = shard.Contributions(2);
  EXPECT_FALSE(shard.Ahead(1, 0, contributions).ok());
  EXPECT_FALSE(shard.Ahead(3, 0, contributions).ok());
  EXPECT_TRUE(shard.Ahead(2, 0, contributions).ok());
  EXPECT_FALSE(shard.Ahead(3, 1, contributions).ok());
  EXPECT_TRUE(shard.Apply(2, contributions).ok());
  EXPECT_EQ(shard.State(2), TwoStepsAtOnce());
}

TEST(ShardStoreAheadTest, DoesNotOverwriteAPinnedVersion) {
  Shard shard;
  EXPECT_TRUE(shard.Apply(1, shard.Contributions(1)).ok());
  const std::vector<float> old = shard.State(0);
  auto reader = shard.store().Pin(0);
  ASSERT_TRUE(reader.ok());
  const auto contributions = shard.Contributions(2);
  EXPECT_TRUE(absl::IsFailedPrecondition(shard.Ahead(2, 0, contributions)));
  EXPECT_EQ(shard.State(0), old);
  *reader = PinnedVersion();
  EXPECT_TRUE(shard.Ahead(2, 1, contributions).ok());
  EXPECT_TRUE(shard.State(0).empty());
  EXPECT_TRUE(shard.Apply(2, contributions).ok());
  EXPECT_EQ(shard.State(2), TwoStepsAtOnce());
}

TEST(ShardStoreAheadTest, ARestoreDiscardsChunksMadeAhead) {
  Shard shard;
  EXPECT_TRUE(shard.Apply(1, shard.Contributions(1)).ok());
  EXPECT_TRUE(shard.Ahead(2, 0, shard.Contributions(7)).ok());
  shard_action::StoreRestore restore;
  restore.source = ps::RestoreRequest::MAPPED;
  restore.id = {1, 1};
  ASSERT_TRUE(shard.store().Restore(restore).ok());
  EXPECT_EQ(shard.variables().newest(), 1u);
  EXPECT_TRUE(shard.Apply(2, shard.Contributions(2)).ok());
  EXPECT_EQ(shard.State(2), TwoStepsAtOnce());
}

// A job of this many tasks, whose large variable is in the shards of all.
JobSpec MakeJobWithALargeVariable(int tasks) {
  JobSpec job = JobSpec::Create(MakeTinyConfig(""), /*sync=*/true, tasks);
  std::vector<VariableSpec> variables(2);
  variables[0].name = "biases";
  variables[0].shape = {5};
  variables[1].name = "weights";
  variables[1].shape = {3, 100'000};
  variables[1].initializer = {Initializer::Kind::kTruncatedNormal, 0.0f, 0.1f};
  job.layout = *VariableLayout::Create(std::move(variables));
  job.sharding = Sharding(job.layout.total_elements(), tasks);
  job.optimizer = MakeMomentum();
  return job;
}

std::unique_ptr<ShardStore> OpenShard(const JobSpec& job, int shard, ThreadPool* pool,
                                      RestoreHooks hooks, FileSystem* files = nullptr) {
  VariableStoreOptions options;
  options.owner.run_id = kRun;
  options.owner.shard = shard;
  options.owner.tasks = job.sharding.tasks();
  auto variables = VariableStore::Open(options, job.layout, job.optimizer);
  return std::make_unique<ShardStore>(&job, shard, "", *std::move(variables), files, pool,
                                      std::move(hooks));
}

TEST(ShardStoreTest, EachShardDrawsItsPartOfTheInitialValues) {
  ThreadPool pool(1);
  shard_action::StoreRestore restore;
  restore.source = ps::RestoreRequest::INITIAL;
  for (const int tasks : {1, 3}) {
    const JobSpec job = MakeJobWithALargeVariable(tasks);
    std::vector<float> expected(job.layout.total_elements());
    InitializeVariables(job.layout, job.seed, absl::MakeSpan(expected));
    for (int shard = 0; shard < tasks; ++shard) {
      const auto store = OpenShard(job, shard, &pool, RestoreHooks());
      ASSERT_TRUE(store->Restore(restore).ok());
      const ElementRange range = job.sharding.shard(shard);
      EXPECT_TRUE(std::equal(expected.begin() + range.begin, expected.begin() + range.end,
                             store->Pin(0)->vectors.weights))
          << "shard " << shard << " of " << tasks;
    }
  }
}

// A task that found checkpoints when it started does not know the values of the warm start. Task 0
// orders them all the same if somebody has moved the checkpoints away since.
TEST(ShardStoreTest, AWarmStartThatTheProcessHasNotReadIsRead) {
  TestFolder folder;
  PosixFileSystem files;
  ASSERT_TRUE(files.MakeDirectory(folder.path() + "/other").ok());
  JobSpec job = JobSpec::Create(
      MakeTinyConfig(absl::StrCat("fine_tune_checkpoint: '", folder.path(), "/other'")),
      /*sync=*/true, /*tasks=*/2);
  CheckpointManifest manifest;
  manifest.run_id = std::string(32, 'a');
  manifest.epoch = 1;
  ASSERT_TRUE(PublishOneShard(files, folder.path() + "/other", job.layout, manifest,
                              std::vector<float>(job.layout.total_elements(), 0.25f))
                  .ok());
  const JobSpec late = job;
  ASSERT_TRUE(job.LoadWarmStart(&files, folder.path() + "/train").ok());
  const std::vector<float>& expected = job.initial_values;
  ASSERT_GT(std::count(expected.begin(), expected.end(), 0.25f), 1000);
  ThreadPool pool(1);
  shard_action::StoreRestore restore;
  restore.source = ps::RestoreRequest::INITIAL;
  for (const JobSpec* const known : std::vector<const JobSpec*>{&job, &late}) {
    const auto store = OpenShard(*known, 1, &pool, RestoreHooks(), &files);
    ASSERT_TRUE(store->Restore(restore).ok());
    const ElementRange range = job.sharding.shard(1);
    EXPECT_TRUE(std::equal(expected.begin() + range.begin, expected.begin() + range.end,
                           store->Pin(0)->vectors.weights))
        << (known == &late ? "not read at the start" : "read at the start");
  }
  std::filesystem::remove_all(folder.path() + "/other");
  const auto store = OpenShard(late, 1, &pool, RestoreHooks(), &files);
  const absl::Status refused = store->Restore(restore).status();
  EXPECT_TRUE(absl::IsNotFound(refused)) << refused;
  EXPECT_TRUE(store->HeldVersions().empty());
}

TEST(ShardStoreTest, ARestoreFromInitialValuesEndsWhenTheProcessIsToldToEnd) {
  ThreadPool pool(1);
  const JobSpec job = MakeJobWithALargeVariable(1);
  int asked = 0;
  RestoreHooks hooks;
  hooks.stop_requested = [&asked] { return ++asked == 3; };
  const auto store = OpenShard(job, 0, &pool, std::move(hooks));
  shard_action::StoreRestore restore;
  restore.source = ps::RestoreRequest::INITIAL;
  const absl::Status stopped = store->Restore(restore).status();
  EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(store->HeldVersions().empty());
  EXPECT_TRUE(store->Restore(restore).ok()) << "another attempt";
}

TEST(ShardStoreTest, RestoresOnlyAVersionOfTheGivenEpoch) {
  Shard shard;
  EXPECT_TRUE(shard.Apply(1, shard.Contributions(1)).ok());
  EXPECT_EQ(shard.store().HeldVersions(), (std::vector<VersionId>{{0, 0}, {1, 1}}));
  shard_action::StoreRestore restore;
  restore.source = ps::RestoreRequest::MAPPED;
  for (const VersionId& other : {VersionId{2, 1}, VersionId{1, 0}}) {
    restore.id = other;
    EXPECT_TRUE(absl::IsFailedPrecondition(shard.store().Restore(restore).status()));
    EXPECT_EQ(shard.variables().newest(), 1u);
  }
  restore.id = {0, 0};
  EXPECT_TRUE(shard.store().Restore(restore).ok());
  EXPECT_EQ(shard.store().HeldVersions(), (std::vector<VersionId>{{0, 0}}));
}

TEST(ShardStoreTest, KeepsItsVersionsFromAJobWithAnotherNumberOfTasks) {
  Shard shard;
  EXPECT_TRUE(shard.Apply(1, shard.Contributions(1)).ok());
  shard_action::StoreRestore restore;
  restore.source = ps::RestoreRequest::INITIAL;
  restore.tasks = 2;
  const absl::Status refused = shard.store().Restore(restore).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_EQ(shard.variables().newest(), 1u);
  restore.tasks = 1;
  EXPECT_TRUE(shard.store().Restore(restore).ok());
}

}  // namespace
}  // namespace pushpull
