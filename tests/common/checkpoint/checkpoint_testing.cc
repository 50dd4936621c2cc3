#include "tests/common/checkpoint/checkpoint_testing.h"

#include <utility>

#include "glog/logging.h"

#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/model/sharding.h"

namespace pushpull {
namespace {

VariableSpec Variable(std::string name, std::vector<int64_t> shape, VariableKind kind) {
  VariableSpec variable;
  variable.name = std::move(name);
  variable.shape = std::move(shape);
  variable.kind = kind;
  return variable;
}

std::vector<float> Values(const VariableLayout& layout, uint64_t step, absl::string_view what,
                          bool with_statistics) {
  std::vector<float> values(layout.total_elements(), 0.0f);
  CounterRandom random(step, StableHash(what));
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    const bool statistic = layout.variables()[i].kind == VariableKind::kMovingStatistic;
    for (int64_t k = 0; k < layout.num_elements(i); ++k) {
      const float value = random.NextFloat() - 0.5f;
      if (!statistic || with_statistics) values[layout.offset(i) + k] = value;
    }
  }
  return values;
}

}  // namespace

VariableLayout TestLayout(int64_t hidden) {
  constexpr VariableKind kTrainable = VariableKind::kTrainable;
  constexpr VariableKind kStatistic = VariableKind::kMovingStatistic;
  absl::StatusOr<VariableLayout> layout = VariableLayout::Create({
      Variable("Net/Conv/weights", {3, 3, 1, 4}, kTrainable),
      Variable("Net/Conv/BatchNorm/beta", {4}, kTrainable),
      Variable("Net/Conv/BatchNorm/moving_mean", {4}, kStatistic),
      Variable("Net/Conv/BatchNorm/moving_variance", {4}, kStatistic),
      Variable("Net/Logits/weights", {hidden, 10}, kTrainable),
      Variable("Net/Logits/biases", {10}, kTrainable),
  });
  CHECK(layout.ok()) << layout.status();
  return *std::move(layout);
}

TestState MakeTestState(const VariableLayout& layout, uint64_t step) {
  TestState state{Values(layout, step, "weights", true), Values(layout, step, "adam", false),
                  Values(layout, step, "adam_1", false), Values(layout, step, "ema", false)};
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    if (layout.variables()[i].kind != VariableKind::kMovingStatistic) continue;
    for (int64_t k = layout.offset(i); k < layout.offset(i) + layout.num_elements(i); ++k) {
      state.ema[k] = state.weights[k];
    }
  }
  return state;
}

CheckpointManifest MakeTestManifest(const VariableLayout& layout, uint64_t epoch, uint64_t step) {
  CheckpointManifest manifest;
  manifest.run_id = kTestRunId;
  manifest.epoch = epoch;
  manifest.step = step;
  manifest.updates = step;
  manifest.num_replicas = 3;
  manifest.seed = 17;
  manifest.run_started_unix = 1000.0;
  manifest.saved_unix = 1000.0 + static_cast<double>(step);
  DescribeLayout(layout, &manifest);
  manifest.slot_names = {"Adam", "Adam_1"};
  manifest.has_ema = true;
  manifest.ema_decay = 0.999;
  manifest.pipeline_config = "model {\n  # \"quoted\"\n}\n";
  manifest.optimizer_state = {{"beta1_power", "0.5"}, {"kind", "adam"}};
  manifest.schedule_state = {{"learning_rate", "0.001"}};
  return manifest;
}

absl::Status SaveTestCheckpoint(FileSystem& files, const std::string& directory,
                                const VariableLayout& layout, uint64_t epoch, uint64_t step,
                                int tasks) {
  const TestState state = MakeTestState(layout, step);
  const Sharding sharding(layout.total_elements(), tasks);
  CheckpointManifest manifest = MakeTestManifest(layout, epoch, step);
  for (int shard = 0; shard < tasks; ++shard) {
    const ElementRange range = sharding.shard(shard);
    ShardSnapshot snapshot;
    snapshot.shard = shard;
    snapshot.tasks = tasks;
    snapshot.range = range;
    snapshot.weights = state.weights.data() + range.begin;
    snapshot.slots = {{"Adam", state.adam.data() + range.begin},
                      {"Adam_1", state.adam_1.data() + range.begin}};
    snapshot.ema = state.ema.data() + range.begin;
    absl::StatusOr<CheckpointFile> file =
        WriteShardFile(files, directory, epoch, step, layout, snapshot);
    if (!file.ok()) {
      AbandonCheckpoint(files, directory, epoch, step);
      return file.status();
    }
    manifest.files.push_back(*std::move(file));
  }
  return PublishCheckpoint(files, directory, manifest);
}

}  // namespace pushpull
