// One clone: registers, pulls, computes, pushes chunk by chunk, commits; repeats what is not
// answered with the same key; may be killed, stopped for a while or cut off.
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
  // kill -9; starts again by itself, under its old name or another.
  void Crash();

  Process* process() { return &process_; }
  // The server has said that training is done.
  bool done() const { return done_; }
  // The server has said that an operator evicted it, and has not let it in since.
  bool evicted() const { return evicted_; }

 private:
  // One contribution on its way.
  struct Job {
    ps::PushKey key;
    uint64_t number = 0;  // which gradient: the step, or the position
    bool is_void = false;
    uint32_t shards_done = 0;
  };

  // Runs it later unless the worker has turned to something else (see flow_).
  void Later(double low, double high, void (SimWorker::*next)());
  template <typename Reply>
  World::Answer<Reply> InFlow(World::Answer<Reply> done);

  // Ends as evicted; tries again later all the same, as the server may have forgotten.
  void Leave();
  SimServer* coordinator() { return (*shard_servers_)[0]; }
  void Register();
  void Heartbeat();
  void ScheduleHeartbeat(double seconds);
  void TakeGrants(const google::protobuf::RepeatedPtrField<ps::ReplicaGrant>& grants);
  void PullAll(uint64_t min_version);
  void PullShard(uint32_t shard, uint64_t min_version);
  // Sync: a newer version has taken the place of the one asked for.
  void OnVersionGone(uint64_t newest);
  void OnPulled();
  // Sync, one shard: asks for the version that the job probably completes before the push has been
  // answered.
  void PullEarly(const Job& job);
  bool IsLastOpen(const Job& job) const;
  // The weights are those of `version`.
  void StartStep(uint64_t version);
  void ComputeNext();
  void Push(Job job);
  void SendChunks(const Job& job, uint32_t shard, const std::vector<uint32_t>& chunks);
  void FinishPush(std::shared_ptr<Job> job, uint32_t shard);
  void Commit(std::shared_ptr<Job> job);
  void OnCommitted(const Job& job, const absl::Status& status);
  // What an error means for the whole worker. True: taken care of.
  bool HandleError(const absl::Status& status);
  ps::PushChunk Header(const Job& job, uint32_t shard, uint32_t chunk) const;
  std::vector<float> GradientOf(const Job& job, uint32_t shard) const;

  World* const world_;
  const uint32_t worker_id_;
  const std::vector<SimServer*>* const shard_servers_;
  Process process_;
  std::string peer_name_;
  uint64_t session_ = 0;
  bool done_ = false;
  bool evicted_ = false;

  uint64_t flow_ = 0;  // rises when what was under way is given up
  uint64_t epoch_ = 0;
  std::map<uint32_t, ps::ReplicaGrant> grants_;
  uint64_t heartbeats_sent_ = 0;
  uint64_t heartbeat_answered_ = 0;
  std::vector<std::optional<PulledShard>> pulled_;  // of the pull under way
  std::vector<PulledShard> weights_;                // to compute from
  std::optional<PulledShard> early_;                // what an early pull has brought
  uint64_t base_version_ = 0;                       // of weights_
  bool busy_ = false;                               // computing or pushing
  bool waiting_ = false;                            // for the next version
  std::set<uint32_t> done_replicas_;                // of step base_version_ + 1
  struct AsyncReplica {
    uint64_t grant = 0;
    uint64_t number = 0;    // of the last push under the grant
    uint64_t position = 0;  // of the next batch
  };
  std::map<uint32_t, AsyncReplica> async_replicas_;
};

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIM_WORKER_H_
