// The environment that the simulated processes share: virtual time, random numbers, the network,
// the disk, the oracle, and the first violation of an invariant. A message is an in-process
// closure, so serialisation, bandwidth and connections are not modelled. Not thread-safe.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_WORLD_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
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
#include "tests/ps_server/simulator/run_counts.h"
#include "tests/ps_server/simulator/sim_config.h"
#include "tests/ps_server/simulator/toy_model.h"

namespace pushpull::sim {

inline constexpr char kRunId[] = "0123456789abcdef";

// A model of the files in the train_dir. They survive every crash. Each write is atomic; torn files
// are not modelled.
struct Disk {
  struct ShardFile {
    ToyState state;
    std::string marks;
  };
  struct Checkpoint {
    uint64_t epoch = 0;  // The epoch that published the checkpoint.
    bool training_done = false;
    uint64_t num_images = 0;
    Oracle::Node node = 0;
    std::vector<ShardFile> shards;
  };
  uint64_t epoch = 0;
  std::optional<uint32_t> replicas;  // The number that an administrator has set.
  // Files of unpublished checkpoints, by epoch, step and shard.
  std::map<std::tuple<uint64_t, uint64_t, uint32_t>, ShardFile> temporary;
  std::map<uint64_t, Checkpoint> checkpoints;  // Published ones, by step.

  // Returns the id of the newest checkpoint, which has the highest epoch and then the highest step.
  std::optional<VersionId> NewestCheckpoint() const;
};

// A process that can receive messages. `incarnation` changes when the process starts and when it
// dies. The times are points of virtual time.
struct Process {
  bool alive = false;
  uint64_t incarnation = 0;
  absl::Duration paused_until = absl::ZeroDuration();       // Stopped, as by SIGSTOP.
  absl::Duration partitioned_until = absl::ZeroDuration();  // No message arrives or leaves.
};

class World {
 public:
  explicit World(const SimConfig& config)
      : config_(config), random_(config.seed, 77), oracle_(config_) {
    numbers.settled = numbers.before = config.replicas;
  }

  const SimConfig& config() const { return config_; }
  EventQueue& queue() { return queue_; }
  absl::Duration now() const { return queue_.now(); }
  Oracle& oracle() { return oracle_; }
  Disk& disk() { return disk_; }
  // Returns whether the faults have stopped.
  bool calm() const { return absl::ToDoubleSeconds(queue_.now()) >= config_.chaos_seconds; }

  // Returns true with this probability.
  bool Chance(double probability) { return random_.NextFloat() < probability; }
  // Returns true with this probability, and always false once the world is calm.
  bool Trouble(double probability) { return !calm() && Chance(probability); }
  // Returns whether a file of the checkpoint of `step` cannot be written. Of the last step that
  // happens twice at most, because a server gives up at the third failure.
  bool DiskFails(uint64_t step) {
    if (!Trouble(config_.disk_failure)) return false;
    return step < config_.num_steps || ++last_checkpoint_failures_ <= 2;
  }
  uint64_t NewSession() { return ++sessions_; }
  double Uniform(double low, double high) { return low + (high - low) * random_.NextFloat(); }
  absl::Duration Seconds(double low, double high) { return absl::Seconds(Uniform(low, high)); }

  // Records a violation, which ends the run. Only the first violation is kept.
  void Fail(const std::string& violation);
  const std::string& violation() const { return violation_; }

  // Runs the closure on the process after `delay`, or when a pause of the process ends. If the
  // process has died by then, the closure is dropped.
  void RunOn(Process* process, absl::Duration delay, std::function<void()> run);

  // Sends a message, which may be lost, duplicated and delayed. `deliver` runs on the incarnation
  // that is alive when the message arrives. If the process is down, `refused` runs instead, unless
  // it is null. Messages from a process to itself are reliable.
  void Send(const Process& from, Process* to, std::function<void()> deliver,
            std::function<void()> refused = nullptr);

  template <typename Reply>
  using Answer = std::function<void(absl::StatusOr<Reply>)>;

  // Makes a call with a deadline. `serve` runs on the server for every copy of the request that
  // arrives. `done` runs at most once, on the incarnation that made the call, with the first
  // answer, UNAVAILABLE (the server is down) or DEADLINE_EXCEEDED.
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

  RunCounts counts;

  // The last restore of each shard: the values, and the epoch that ordered it.
  struct Restored {
    uint64_t epoch = 0;
    ToyState state;
  };
  std::map<uint32_t, Restored> restored;

  // The numbers of replicas that a step may have now.
  struct Numbers {
    uint32_t settled = 0;      // Acknowledged last, or the number of the start.
    uint64_t from_step = 0;    // `settled` holds from this step on, ...
    uint32_t before = 0;       // ... and this number until then.
    std::set<uint32_t> asked;  // Since the last answer; one of them may be on disk.
  };
  Numbers numbers;
  std::vector<int64_t> last_shares;

 private:
  absl::Duration Delay();

  const SimConfig config_;
  EventQueue queue_;
  CounterRandom random_;
  Oracle oracle_;
  Disk disk_;
  std::string violation_;
  uint64_t sessions_ = 0;
  int last_checkpoint_failures_ = 0;
};

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_WORLD_H_
