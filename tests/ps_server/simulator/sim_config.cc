#include "tests/ps_server/simulator/sim_config.h"

#include "absl/strings/str_format.h"

#include "common/base/random.h"

namespace pushpull::sim {

SimConfig RandomConfig(Mode mode, uint64_t seed) {
  CounterRandom random(seed, 1 + static_cast<uint64_t>(mode));
  const auto chance = [&](double p) { return random.NextFloat() < p; };
  // A rate is zero in a third of the schedules, so that each fault also occurs without the others.
  const auto rate = [&](double most) { return chance(1.0 / 3) ? 0.0 : most * random.NextFloat(); };
  SimConfig config;
  config.seed = seed;
  config.mode = mode;
  config.shards = 1 + random.NextBelow(3);
  config.one_process = chance(0.4);
  for (uint32_t shard = 0; shard < config.shards; ++shard) {
    std::vector<int> chunks;
    const uint64_t num_chunks = 1 + random.NextBelow(3);
    for (uint64_t i = 0; i < num_chunks; ++i) chunks.push_back(1 + random.NextBelow(4));
    config.chunk_elements.push_back(chunks);
  }
  config.replicas = 1 + random.NextBelow(4);
  config.spares = config.sync() && chance(0.3) ? 1 : 0;
  config.num_steps = 3 + random.NextBelow(18);
  if (mode == Mode::kSyncDrop) config.min_contributors = 1 + random.NextBelow(config.replicas);
  if (mode == Mode::kAsync && chance(0.5)) config.max_staleness = 1 + random.NextBelow(4);
  config.checkpoint_steps = chance(0.8) ? 1 + random.NextBelow(5) : 0;
  config.measure_norms = chance(0.4);
  config.void_one_in = chance(0.3) ? 6 + random.NextBelow(20) : 0;

  config.chaos_seconds = 2 + 10 * random.NextFloat();
  config.loss = rate(0.2);
  config.duplication = rate(0.3);
  config.corruption = rate(0.05);
  config.long_delay = rate(0.05);
  config.crash_at_action = rate(0.01);
  config.worker_crash_rate = rate(0.2);
  config.worker_pause_rate = rate(0.1);
  config.partition_rate = rate(0.1);
  config.keep_mapped_state = chance(0.3) ? 1 : random.NextFloat();
  config.disk_failure = rate(0.2);
  config.drain_rate = chance(0.8) ? 0.0 : 0.2;
  config.save_rate = chance(0.5) ? 0.0 : 2 * random.NextFloat();
  config.evict_rate = chance(0.6) ? 0.0 : 0.5 * random.NextFloat();
  config.move_rate = chance(0.6) ? 0.0 : 0.7 * random.NextFloat();
  config.early_end = chance(0.7) ? 0.0 : 0.5 * random.NextFloat();
  config.refused_start = chance(0.8) ? 0.0 : 0.3;
  config.late_publication = chance(0.7) ? 0.0 : 0.3 * random.NextFloat();
  config.ends_by_epochs = chance(0.4);
  if (config.sync() && chance(0.4)) {
    config.scale_rate = 2 * random.NextFloat();
    config.spares += random.NextBelow(4);
  }
  config.shares_by_speed = config.sync() && chance(0.3);
  return config;
}

std::string ToString(const SimConfig& config) {
  constexpr const char* kModes[] = {"sync, wait", "sync, drop", "async"};
  return absl::StrFormat(
      "seed %d: %s, %d shards in %s, %d replicas, %d spares, %d steps%s, checkpoint every %d%s%s%s",
      config.seed, kModes[static_cast<int>(config.mode)], config.shards,
      config.one_process ? "one process" : "a process each", config.replicas, config.spares,
      config.num_steps, config.ends_by_epochs ? " by epochs" : "", config.checkpoint_steps,
      config.measure_norms ? ", norms" : "", config.scale_rate > 0 ? ", scaled" : "",
      config.shares_by_speed ? ", shares by speed" : "");
}

}  // namespace pushpull::sim
