// A simulated clone. It registers, pulls the weights, computes a gradient of the toy model, pushes
// it in chunks, and commits. It repeats requests that are not answered, under the same key. It may
// be killed, paused, or cut off from the network. Supervisors, data and devices are not modelled.
// Not thread-safe.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIM_WORKER_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIM_WORKER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "protos/parameter_server.pb.h"
#include "tests/ps_server/simulator/sim_server.h"
#include "tests/ps_server/simulator/world.h"

namespace pushpull::sim {

class SimWorker {
 public:
  SimWorker(World* world, uint32_t worker_id, const std::vector<SimServer*>* shard_servers)
      : world_(world), worker_id_(worker_id), shard_servers_(shard_servers) {}

  void Start();
  // Kills the process, or stops it so that it says that it leaves, and schedules its restart, under
  // the old peer name or a new one.
  void Crash();

  Process* process() { return &process_; }
  // Returns whether the server has said that training is done.
  bool done() const { return done_; }
  // Returns whether the server has said that the clone is evicted, and has not registered it since.
  bool evicted() const { return evicted_; }

 private:
  // A contribution that is being computed, pushed or committed.
  struct Job {
    ps::PushKey key;
    uint64_t number = 0;  // Sync: the step. Async: the position.
    bool is_void = false;
    BatchPart part = {};       // Sync.
    double seconds = 0;        // That computing took.
    uint64_t attempt = 0;      // Rises when the contribution has to be sent again.
    uint32_t shards_done = 0;  // In this attempt.
  };

  // Runs `next` after a random delay in [low, high) seconds, unless flow_ has changed by then.
  void Later(double low, double high, void (SimWorker::*next)());
  // Wraps `done` so that it does nothing once flow_ has changed.
  template <typename Reply>
  World::Answer<Reply> InFlow(World::Answer<Reply> done);

  // Ends the process because it is evicted. It starts again later, because a restarted server may
  // have forgotten the eviction.
  void Leave();
  SimServer* coordinator() { return (*shard_servers_)[0]; }
  void Register();
  ps::HeartbeatRequest HeartbeatRequest() const;
  void Heartbeat();
  void SayThatItLeaves();
  void ScheduleHeartbeat(double seconds);
  void TakeGrants(const google::protobuf::RepeatedPtrField<ps::ReplicaGrant>& grants);
  void PullAll(uint64_t min_version);
  void PullShard(uint32_t shard, uint64_t min_version);
  // Sync: handles the answer that a newer version has replaced the requested one.
  void OnVersionGone(uint64_t newest);
  void OnPulled();
  // Sync, one shard: pulls the version that the push will probably complete, before the push is
  // acknowledged.
  void PullEarly(const Job& job);
  // Returns whether the worker has no other contribution to make to the job's step.
  bool IsLastOpen(const Job& job) const;
  // Starts the step that uses `weights_`, which are those of `version`.
  void StartStep(uint64_t version);
  void ComputeNext();
  void Push(Job job);
  // Sends the whole contribution to every shard.
  void PushToShards(std::shared_ptr<Job> job);
  // Sends the whole contribution again after a delay, as GradientPusher does.
  void PushAgain(std::shared_ptr<Job> job);
  void SendChunks(const Job& job, uint32_t shard);
  void FinishPush(std::shared_ptr<Job> job, uint32_t shard);
  void Commit(std::shared_ptr<Job> job);
  void OnCommitted(const Job& job, const absl::Status& status);
  // Handles the errors that concern the whole worker. Returns false for other errors.
  bool HandleError(const absl::Status& status);
  ps::PushChunk Header(const Job& job, uint32_t shard, uint32_t chunk) const;
  std::vector<float> GradientOf(const Job& job, uint32_t shard) const;
  uint64_t SamplesOf(const Job& job) const;

  World* const world_;
  const uint32_t worker_id_;
  const std::vector<SimServer*>* const shard_servers_;
  Process process_;
  std::string peer_name_;
  uint64_t session_ = 0;
  bool done_ = false;
  bool evicted_ = false;

  uint64_t flow_ = 0;  // Rises when the worker abandons what it is doing.
  uint64_t epoch_ = 0;
  std::map<uint32_t, ps::ReplicaGrant> grants_;
  uint64_t heartbeats_sent_ = 0;
  uint64_t heartbeat_answered_ = 0;
  std::vector<std::optional<PulledShard>> pulled_;  // Answers of the current pull.
  std::vector<PulledShard> weights_;                // By shard.
  std::optional<PulledShard> early_;                // The answer of an early pull.
  uint64_t base_version_ = 0;                       // The version of weights_.
  bool busy_ = false;                               // Computing or pushing.
  bool waiting_ = false;                            // Waiting for the next version.
  std::set<uint64_t> done_grants_;                  // Committed, in step base_version_ + 1.
  struct AsyncReplica {
    uint64_t grant = 0;
    uint64_t number = 0;    // The last push under the grant.
    uint64_t position = 0;  // The next batch.
  };
  std::map<uint32_t, AsyncReplica> async_replicas_;
  std::map<uint32_t, BatchPart> first_parts_;  // By replica: of the first grant.
};

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIM_WORKER_H_
