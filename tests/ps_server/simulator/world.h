// What all nodes of a simulation share: virtual time, dice, the network, the disk, the oracle, and
// the first violation found. Single-threaded.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_WORLD_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/random.h"
#include "protos/parameter_server.pb.h"
#include "ps_server/core/version_id.h"
#include "tests/ps_server/simulator/event_queue.h"
#include "tests/ps_server/simulator/sim_config.h"
#include "tests/ps_server/simulator/toy_model.h"

namespace pushpull::sim {

inline constexpr char kRunId[] = "0123456789abcdef";

// Files of the train_dir: survive every crash. Only what is written here in one go is there
// afterwards.
struct Disk {
  struct ShardFile {
    ToyState state;
    std::string marks;
  };
  struct Checkpoint {
    uint64_t epoch = 0;  // in which it was published
    Oracle::Node node = 0;
    std::vector<ShardFile> shards;
  };
  uint64_t epoch = 0;
  std::map<std::tuple<uint64_t, uint64_t, uint32_t>, ShardFile> temporary;  // epoch, step, shard
  std::map<uint64_t, Checkpoint> checkpoints;                               // published, by step

  // The id of the newest: by epoch, then step.
  std::optional<VersionId> NewestCheckpoint() const;
};

// A process that messages are sent to. incarnation changes at every crash.
struct Process {
  bool alive = false;
  uint64_t incarnation = 0;
  absl::Duration paused_until = absl::ZeroDuration();       // SIGSTOP
  absl::Duration partitioned_until = absl::ZeroDuration();  // hears nothing, is not heard
};

class World {
 public:
  explicit World(const SimConfig& config)
      : config_(config), random_(config.seed, 77), oracle_(config_) {}

  const SimConfig& config() const { return config_; }
  EventQueue& queue() { return queue_; }
  absl::Duration now() const { return queue_.now(); }
  Oracle& oracle() { return oracle_; }
  Disk& disk() { return disk_; }
  bool calm() const { return absl::ToDoubleSeconds(queue_.now()) >= config_.chaos_seconds; }

  bool Chance(double probability) { return random_.NextFloat() < probability; }
  // Only in the time of chaos.
  bool Trouble(double probability) { return !calm() && Chance(probability); }
  uint64_t NewSession() { return ++sessions_; }
  double Uniform(double low, double high) { return low + (high - low) * random_.NextFloat(); }
  absl::Duration Seconds(double low, double high) { return absl::Seconds(Uniform(low, high)); }

  void Fail(const std::string& violation);
  const std::string& violation() const { return violation_; }

  // Runs it on the process later, unless that is another incarnation by then; waits while it is
  // paused.
  void RunOn(Process* process, absl::Duration delay, std::function<void()> run);

  // A message to whatever incarnation runs on arrival: may be lost, doubled, delayed. refused: the
  // process is down (may be null).
  void Send(const Process& from, Process* to, std::function<void()> deliver,
            std::function<void()> refused = nullptr);

  template <typename Reply>
  using Answer = std::function<void(absl::StatusOr<Reply>)>;

  // A call with a deadline. `serve` runs on the server, for every copy of the message that arrives;
  // `done` runs once on the caller's incarnation: with the first answer, UNAVAILABLE or
  // DEADLINE_EXCEEDED.
  template <typename Reply>
  void Call(Process* from, Process* to, absl::Duration timeout,
            std::function<void(Answer<Reply>)> serve, Answer<Reply> done) {
    const auto open = std::make_shared<bool>(true);
    const uint64_t incarnation = from->incarnation;
    Answer<Reply> finish = [open, from, incarnation, done](absl::StatusOr<Reply> reply) {
      if (!*open || from->incarnation != incarnation || !from->alive) return;
      *open = false;
      done(std::move(reply));
    };
    RunOn(from, timeout, [finish] { finish(absl::DeadlineExceededError("no answer in time")); });
    Send(
        *from, to,
        [this, from, to, serve, finish] {
          serve([this, from, to, finish](absl::StatusOr<Reply> reply) {
            Send(*to, from, [finish, reply] { finish(reply); });
          });
        },
        [this, from, to, finish] {
          Send(*to, from, [finish] { finish(absl::UnavailableError("connection refused")); });
        });
  }

  // For the report.
  uint64_t messages = 0;
  uint64_t crashes = 0;
  uint64_t rollbacks = 0;
  uint64_t saves = 0;  // that an operator asked for and got
  uint64_t evictions = 0;
  uint64_t moves = 0;     // of a process to a machine that has an older state file, or none
  uint64_t removals = 0;  // of a state file at the end of a process
  uint64_t early_pulls = 0;
  uint64_t chunks_kept = 0;  // that were made ahead and are part of a version

  // What each shard has been restored to, and for which epoch.
  struct Restored {
    uint64_t epoch = 0;
    ToyState state;
  };
  std::map<uint32_t, Restored> restored;

 private:
  absl::Duration Delay();

  const SimConfig config_;
  EventQueue queue_;
  CounterRandom random_;
  Oracle oracle_;
  Disk disk_;
  std::string violation_;
  uint64_t sessions_ = 0;
};

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_WORLD_H_
