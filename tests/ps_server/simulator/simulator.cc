#include "tests/ps_server/simulator/simulator.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"

#include "tests/ps_server/simulator/sim_server.h"
#include "tests/ps_server/simulator/sim_worker.h"
#include "tests/ps_server/simulator/world.h"

namespace pushpull::sim {
namespace {

// I8: training must be done this long after the faults have stopped. The longest runs need about a
// tenth of it.
constexpr double kCalmSeconds = 200;
constexpr uint64_t kMaxEvents = 3'000'000;
constexpr double kMischiefPeriod = 0.1;  // Seconds.

class Simulation {
 public:
  explicit Simulation(const SimConfig& config) : world_(config) {
    std::vector<uint32_t> all(config.shards);
    for (uint32_t shard = 0; shard < config.shards; ++shard) all[shard] = shard;
    if (config.one_process) {
      servers_.push_back(std::make_unique<SimServer>(&world_, all, true, &shard_servers_));
      shard_servers_.assign(config.shards, servers_[0].get());
    } else {
      for (const uint32_t shard : all) {
        servers_.push_back(std::make_unique<SimServer>(&world_, std::vector<uint32_t>{shard},
                                                       shard == 0, &shard_servers_));
        shard_servers_.push_back(servers_.back().get());
      }
    }
    for (uint32_t worker = 0; worker < config.replicas + config.spares; ++worker) {
      workers_.push_back(std::make_unique<SimWorker>(&world_, worker, &shard_servers_));
    }
  }

  SimResult Run() {
    for (const auto& server : servers_) {
      world_.queue().After(world_.Seconds(0, 0.5), [&server] { server->Start(); });
    }
    for (const auto& worker : workers_) {
      world_.queue().After(world_.Seconds(0, 3), [&worker] { worker->Start(); });
    }
    Mischief();
    const absl::Duration limit = absl::Seconds(world_.config().chaos_seconds + kCalmSeconds);
    while (world_.violation().empty() && !Done()) {
      if (world_.queue().now() > limit || world_.counts.events >= kMaxEvents) {
        world_.Fail("I8: no progress: " + DescribeState());
      }
      world_.queue().RunOne();
      ++world_.counts.events;
    }
    if (world_.violation().empty()) {
      for (const auto& server : servers_) server->End();
    }
    SimResult result;
    result.violation = world_.violation();
    result.counts = world_.counts;
    result.seconds = absl::ToDoubleSeconds(world_.queue().now());
    return result;
  }

 private:
  bool Done() const {
    return servers_[0]->finished() &&
           std::all_of(workers_.begin(), workers_.end(),
                       [](const auto& w) { return w->done() || w->evicted(); });
  }

  std::string DescribeState() const {
    const Coordinator* coordinator = servers_[0]->coordinator();
    if (coordinator == nullptr) return "the coordinator is down";
    return absl::StrFormat("version %d, finished %d, %s\n%s", coordinator->version(),
                           servers_[0]->finished(), coordinator->WaitingFor(world_.now()),
                           coordinator->Status(world_.now()).DebugString());
  }

  // Causes the faults that come at a rate per second. Runs every kMischiefPeriod.
  void Mischief() {
    if (world_.calm()) return;
    const SimConfig& config = world_.config();
    const auto strikes = [&](double rate) { return world_.Chance(rate * kMischiefPeriod); };
    for (const auto& worker : workers_) {
      Process* process = worker->process();
      if (!process->alive) continue;
      if (strikes(config.worker_crash_rate)) {
        worker->Crash();
      } else if (strikes(config.worker_pause_rate)) {
        process->paused_until = world_.now() + world_.Seconds(0.5, 8);
      } else if (strikes(config.partition_rate)) {
        process->partitioned_until = world_.now() + world_.Seconds(0.5, 6);
      }
    }
    for (const auto& server : servers_) {
      if (!server->process()->alive) continue;
      if (strikes(config.partition_rate)) {
        server->process()->partitioned_until = world_.now() + world_.Seconds(0.5, 4);
      }
      if (config.crash_at_action > 0 && strikes(0.05)) {
        server->Crash(!world_.Chance(config.keep_mapped_state));
      }
    }
    if (strikes(config.drain_rate)) servers_[0]->Drain();
    if (strikes(config.save_rate)) servers_[0]->SaveNow();
    if (strikes(config.evict_rate)) EvictOne();
    if (config.scale_rate > 0 && strikes(config.scale_rate)) {
      servers_[0]->Scale(1 + static_cast<uint32_t>(world_.Uniform(0, kMaxSimReplicas - 0.01)));
    }
    world_.queue().After(absl::Seconds(kMischiefPeriod), [this] { Mischief(); });
  }

  // Evicts a random clone unless no other clone would be left.
  void EvictOne() {
    const uint32_t worker = world_.Uniform(0, workers_.size() - 0.01);
    uint32_t left = 0;
    for (uint32_t other = 0; other < workers_.size(); ++other) {
      left += other != worker && !servers_[0]->HasEvicted(other);
    }
    if (left > 0) servers_[0]->Evict(worker);
  }

  World world_;
  std::vector<SimServer*> shard_servers_;
  std::vector<std::unique_ptr<SimServer>> servers_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
};

}  // namespace

SimResult RunSchedule(const SimConfig& config) { return Simulation(config).Run(); }

}  // namespace pushpull::sim
