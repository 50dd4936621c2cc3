#include "tests/ps_server/simulator/sim_worker.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"

#include "common/base/crc32c.h"
#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"

namespace pushpull::sim {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(1);
constexpr absl::Duration kLongPoll = absl::Seconds(4);

}  // namespace

void SimWorker::Start() {
  process_.alive = true;
  ++process_.incarnation;
  ++flow_;
  // A clone that its supervisor restarts keeps its name. A clone on another machine has a new name.
  if (peer_name_.empty() || world_->Chance(0.4)) {
    peer_name_ = absl::StrFormat("host%d:%d", worker_id_, process_.incarnation);
  }
  // A clone that its supervisor restarts keeps its session.
  if (session_ == 0 || world_->Chance(0.5)) session_ = world_->NewSession();
  epoch_ = 0;
  grants_.clear();
  async_replicas_.clear();
  done_grants_.clear();
  busy_ = waiting_ = false;
  ScheduleHeartbeat(0.7);
  Register();
}

void SimWorker::Crash() {
  if (world_->Chance(0.3)) SayThatItLeaves();
  process_.alive = false;
  ++process_.incarnation;
  ++flow_;
  world_->queue().After(world_->Seconds(0.1, 5), [this] { Start(); });
}

void SimWorker::Leave() {
  evicted_ = true;
  process_.alive = false;
  ++process_.incarnation;
  ++flow_;
  world_->queue().After(world_->Seconds(0.1, 5), [this] { Start(); });
}

void SimWorker::Later(double low, double high, void (SimWorker::*next)()) {
  world_->RunOn(&process_, world_->Seconds(low, high), [this, next, flow = flow_] {
    if (flow == flow_) (this->*next)();
  });
}

template <typename Reply>
World::Answer<Reply> SimWorker::InFlow(World::Answer<Reply> done) {
  return [this, flow = flow_, done = std::move(done)](absl::StatusOr<Reply> reply) {
    if (flow == flow_) done(std::move(reply));
  };
}

void SimWorker::Register() {
  if (done_) return;
  ++flow_;
  busy_ = waiting_ = false;
  ps::RegisterRequest request;
  request.set_run_id(kRunId);
  request.set_worker_id(worker_id_);
  request.set_num_replicas(world_->config().replicas);
  request.set_peer_name(peer_name_);
  request.set_layout_signature("toy");
  request.set_session(session_);
  request.set_protocol_version(kProtocolVersion);
  request.set_num_images(world_->config().num_steps * kBatchSize - 1);  // The last batch wraps.
  world_->Call<ps::RegisterReply>(
      &process_, coordinator()->process(), kCallTimeout,
      [server = coordinator(), request](World::Answer<ps::RegisterReply> answer) {
        server->Register(request, std::move(answer));
      },
      InFlow<ps::RegisterReply>([this](absl::StatusOr<ps::RegisterReply> reply) {
        if (GetErrorDetail(reply.status()).kind() == ps::ErrorDetail::EVICTED) {
          Leave();
          return;
        }
        if (!reply.ok()) {
          Later(0.05, 0.5, &SimWorker::Register);
          return;
        }
        evicted_ = false;
        if (reply->epoch() < epoch_) {  // A late answer of a dead server.
          Later(0.05, 0.5, &SimWorker::Register);
          return;
        }
        done_ = reply->training_done();
        epoch_ = reply->epoch();
        heartbeat_answered_ = heartbeats_sent_;
        grants_.clear();
        TakeGrants(reply->grants());
        PullAll(reply->version());
      }));
}

void SimWorker::ScheduleHeartbeat(double seconds) {
  world_->RunOn(&process_, absl::Seconds(seconds), [this] {
    ScheduleHeartbeat(0.7);
    Heartbeat();
  });
}

ps::HeartbeatRequest SimWorker::HeartbeatRequest() const {
  ps::HeartbeatRequest request;
  request.set_run_id(kRunId);
  request.set_epoch(epoch_);
  request.set_worker_id(worker_id_);
  request.set_session(session_);
  return request;
}

void SimWorker::SayThatItLeaves() {
  if (epoch_ == 0) return;
  ps::HeartbeatRequest request = HeartbeatRequest();
  request.set_leaving(true);
  world_->Call<ps::HeartbeatReply>(
      &process_, coordinator()->process(), kCallTimeout,
      [server = coordinator(), request](World::Answer<ps::HeartbeatReply> answer) {
        server->Heartbeat(request, std::move(answer));
      },
      [](const absl::StatusOr<ps::HeartbeatReply>&) {});
}

void SimWorker::Heartbeat() {
  if (epoch_ == 0 || done_) return;
  const ps::HeartbeatRequest request = HeartbeatRequest();
  world_->Call<ps::HeartbeatReply>(
      &process_, coordinator()->process(), kCallTimeout,
      [server = coordinator(), request](World::Answer<ps::HeartbeatReply> answer) {
        server->Heartbeat(request, std::move(answer));
      },
      [this, number = ++heartbeats_sent_,
       epoch = epoch_](absl::StatusOr<ps::HeartbeatReply> reply) {
        if (epoch != epoch_ || number <= heartbeat_answered_) return;
        if (!reply.ok()) {
          HandleError(reply.status());
          return;
        }
        heartbeat_answered_ = number;
        done_ = reply->training_done();
        grants_.clear();
        TakeGrants(reply->grants());
        if (!done_ && waiting_) ComputeNext();
      });
}

void SimWorker::TakeGrants(const google::protobuf::RepeatedPtrField<ps::ReplicaGrant>& grants) {
  for (const ps::ReplicaGrant& grant : grants) {
    grants_[grant.replica()] = grant;
    AsyncReplica& replica = async_replicas_[grant.replica()];
    if (replica.grant == grant.grant()) continue;
    const bool knows_better = replica.grant != 0 && !world_->config().take_positions_from_grants;
    replica = {grant.grant(), 0, knows_better ? replica.position : grant.position()};
  }
}

bool SimWorker::HandleError(const absl::Status& status) {
  const ps::ErrorDetail detail = GetErrorDetail(status);
  switch (detail.kind()) {
    case ps::ErrorDetail::EPOCH_CHANGED:
      Register();
      return true;
    case ps::ErrorDetail::EVICTED:
      Leave();
      return true;
    case ps::ErrorDetail::FENCED:
      if (!world_->config().sync()) {
        Register();
        return true;
      }
      return false;
    default:
      return false;
  }
}

void SimWorker::OnVersionGone(uint64_t newest) {
  if (world_->config().pull_again_when_gone || weights_.empty()) {
    PullAll(newest);
    return;
  }
  StartStep(newest);
}

void SimWorker::PullAll(uint64_t min_version) {
  early_.reset();
  pulled_.assign(world_->config().shards, std::nullopt);
  if (done_) return;
  for (uint32_t shard = 0; shard < pulled_.size(); ++shard) PullShard(shard, min_version);
}

void SimWorker::PullShard(uint32_t shard, uint64_t min_version) {
  ps::PullRequest request;
  request.set_run_id(kRunId);
  request.set_epoch(epoch_);
  request.set_shard(shard);
  request.set_min_version(min_version);
  request.set_exact(world_->config().sync() && world_->config().pull_exactly);
  request.set_worker_id(worker_id_);
  SimServer* server = (*shard_servers_)[shard];
  world_->Call<PulledShard>(
      &process_, server->process(), kLongPoll,
      [server, request](World::Answer<PulledShard> answer) {
        server->Pull(request, std::move(answer));
      },
      InFlow<PulledShard>([this, shard, min_version](absl::StatusOr<PulledShard> reply) {
        if (!reply.ok()) {
          if (HandleError(reply.status())) return;
          const ps::ErrorDetail detail = GetErrorDetail(reply.status());
          if (detail.kind() == ps::ErrorDetail::VERSION_GONE) {
            ++flow_;  // Ends the pulls of the other shards.
            OnVersionGone(detail.step());
            return;
          }
          world_->RunOn(&process_, world_->Seconds(0.02, 0.3),
                        [this, shard, min_version, flow = flow_] {
                          if (flow == flow_) PullShard(shard, min_version);
                        });
          return;
        }
        if (reply->epoch != epoch_) world_->Fail("I5: a pull returned a version of another epoch");
        pulled_[shard] = std::move(*reply);
        OnPulled();
      }));
}

void SimWorker::OnPulled() {
  uint64_t lowest = UINT64_MAX;
  uint64_t highest = 0;
  for (const auto& shard : pulled_) {
    if (!shard.has_value()) return;
    lowest = std::min(lowest, shard->version);
    highest = std::max(highest, shard->version);
  }
  weights_.clear();
  for (auto& shard : pulled_) weights_.push_back(std::move(*shard));
  StartStep(world_->config().sync() ? highest : lowest);
}

void SimWorker::StartStep(uint64_t version) {
  base_version_ = version;
  early_.reset();
  done_grants_.clear();
  waiting_ = false;
  ComputeNext();
}

bool SimWorker::IsLastOpen(const Job& job) const {
  return std::all_of(grants_.begin(), grants_.end(), [&](const auto& grant) {
    return grant.first == job.key.replica() || done_grants_.count(grant.second.grant()) > 0 ||
           grant.second.from_step() > job.key.step();
  });
}

void SimWorker::PullEarly(const Job& job) {
  const bool waits = world_->config().early_pull_waits;
  ps::PullRequest request;
  request.set_run_id(kRunId);
  request.set_epoch(epoch_);
  request.set_min_version(waits ? job.key.step() : 0);
  request.set_exact(waits);
  request.set_worker_id(worker_id_);
  SimServer* server = (*shard_servers_)[0];
  world_->Call<PulledShard>(
      &process_, server->process(), kLongPoll,
      [server, request](World::Answer<PulledShard> answer) {
        server->Pull(request, std::move(answer));
      },
      // Errors are ignored: the answer to the push shows them, and the worker then pulls again.
      InFlow<PulledShard>([this, step = job.key.step()](absl::StatusOr<PulledShard> reply) {
        if (!reply.ok() || base_version_ + 1 != step) return;
        ++world_->counts.early_pulls;
        early_ = std::move(*reply);
      }));
}

void SimWorker::ComputeNext() {
  const bool sync = world_->config().sync();
  if (base_version_ >= world_->config().num_steps) return;  // A heartbeat sets done_.
  // Async: the worker takes a random replica.
  size_t skip = 0;
  if (!sync && grants_.size() > 1) skip = world_->Uniform(0, grants_.size() - 0.01);
  for (const auto& [replica, grant] : grants_) {
    if (skip > 0) {
      --skip;
      continue;
    }
    if (done_grants_.count(grant.grant()) > 0) continue;
    if (sync && grant.from_step() > base_version_ + 1) continue;
    ++flow_;  // Ends the pull of the next version.
    busy_ = true;
    waiting_ = false;
    Job job;
    job.key.set_run_id(kRunId);
    job.key.set_epoch(epoch_);
    job.key.set_replica(replica);
    job.key.set_grant(grant.grant());
    job.key.set_worker_id(worker_id_);
    job.key.set_base_version(base_version_);
    AsyncReplica& async_replica = async_replicas_[replica];
    job.key.set_step(sync ? base_version_ + 1 : ++async_replica.number);
    if (!sync) job.key.set_position(async_replica.position);
    job.number = sync ? job.key.step() : job.key.position();
    job.is_void = IsVoid(world_->config(), replica, job.number);
    job.part = {static_cast<int64_t>(grant.first_sample()), static_cast<int64_t>(grant.samples())};
    if (!world_->config().take_parts_from_grants) {
      job.part = first_parts_.try_emplace(replica, job.part).first->second;
    }
    if (sync) world_->oracle().RecordPart(replica, grant.grant(), job.part);
    job.seconds = world_->Uniform(0.01, 0.2);
    world_->RunOn(&process_, absl::Seconds(job.seconds), [this, job, flow = flow_] {
      if (flow == flow_) Push(job);
    });
    return;
  }
  busy_ = false;
  if (!sync) {
    Later(0.1, 0.5, &SimWorker::Register);  // The worker has no replica yet.
    return;
  }
  if (waiting_) return;
  // The weights are kept, because a replica may still be granted for this step.
  ++flow_;
  waiting_ = true;
  PullAll(base_version_ + 1);
}

ps::PushChunk SimWorker::Header(const Job& job, uint32_t shard, uint32_t chunk) const {
  ps::PushChunk header;
  *header.mutable_key() = job.key;
  header.set_shard(shard);
  header.set_chunk(chunk);
  const uint32_t last = world_->config().chunk_elements[shard].size() - 1;
  if (world_->config().shards == 1 && chunk == last) {
    header.mutable_commit()->set_samples(SamplesOf(job));
    header.mutable_commit()->set_compute_seconds(job.seconds);
  }
  return header;
}

std::vector<float> SimWorker::GradientOf(const Job& job, uint32_t shard) const {
  const uint32_t data = world_->config().sync() ? DataOf(job.part) : job.key.replica();
  return Gradient(shard, data, job.number, weights_[shard].weights);
}

uint64_t SimWorker::SamplesOf(const Job& job) const {
  if (world_->config().sync()) return static_cast<uint64_t>(job.part.samples);
  return Samples(job.key.replica(), job.number);
}

void SimWorker::Push(Job job) {
  if (!world_->config().sync()) {
    ToyPush push{job.key.position(), {}};
    for (const PulledShard& shard : weights_) push.versions.push_back(shard.version);
    world_->oracle().RecordPush({job.key.replica(), job.key.grant(), job.key.step()}, push);
  }
  const auto shared = std::make_shared<Job>(std::move(job));
  if (shared->is_void) {
    Commit(shared);
    return;
  }
  PushToShards(shared);
  const bool decides = world_->config().sync() && weights_.size() == 1 && IsLastOpen(*shared);
  if (decides) PullEarly(*shared);
}

void SimWorker::PushToShards(std::shared_ptr<Job> job) {
  job->shards_done = 0;
  for (uint32_t shard = 0; shard < weights_.size(); ++shard) {
    SendChunks(*job, shard);
    FinishPush(job, shard);
  }
}

void SimWorker::PushAgain(std::shared_ptr<Job> job) {
  ++job->attempt;
  world_->RunOn(&process_, world_->Seconds(0.02, 0.2), [this, job, flow = flow_] {
    if (flow == flow_) PushToShards(job);
  });
}

void SimWorker::SendChunks(const Job& job, uint32_t shard) {
  const std::vector<float> gradient = GradientOf(job, shard);
  SimServer* server = (*shard_servers_)[shard];
  int begin = 0;
  const std::vector<int>& sizes = world_->config().chunk_elements[shard];
  for (uint32_t chunk = 0; chunk < sizes.size(); ++chunk) {
    const int elements = sizes[chunk];
    auto bytes = std::make_shared<std::vector<float>>(gradient.begin() + begin,
                                                      gradient.begin() + begin + elements);
    begin += elements;
    ps::PushChunk header = Header(job, shard, chunk);
    Payload payload{bytes, reinterpret_cast<const char*>(bytes->data()), elements * sizeof(float)};
    header.set_crc32c(Crc32c(payload.data, payload.size_bytes));
    const absl::Status verdict = world_->Trouble(world_->config().corruption)
                                     ? absl::DataLossError("damaged")
                                     : absl::OkStatus();
    world_->Send(process_, server->process(), [server, header, payload, verdict] {
      server->PushChunk(header, payload, verdict);
    });
  }
}

void SimWorker::FinishPush(std::shared_ptr<Job> job, uint32_t shard) {
  const ps::PushChunk last = Header(*job, shard, world_->config().chunk_elements[shard].size() - 1);
  SimServer* server = (*shard_servers_)[shard];
  world_->Call<ps::PushReply>(
      &process_, server->process(), kLongPoll,
      [server, last](World::Answer<ps::PushReply> answer) {
        server->FinishPush(last, std::move(answer));
      },
      InFlow<ps::PushReply>([this, job,
                             attempt = job->attempt](absl::StatusOr<ps::PushReply> reply) {
        if (attempt != job->attempt) return;
        if (!reply.ok()) {
          const bool retry = !HandleError(reply.status());
          const ps::ErrorDetail::Kind kind = GetErrorDetail(reply.status()).kind();
          const bool final = kind == ps::ErrorDetail::FENCED || kind == ps::ErrorDetail::STALE ||
                             kind == ps::ErrorDetail::STEP_TOO_NEW;
          if (retry && final) {
            OnCommitted(*job, reply.status());
          } else if (retry) {
            PushAgain(job);
          }
          return;
        }
        if (reply->outcome() == ps::PushReply::INCOMPLETE) {
          PushAgain(job);
          return;
        }
        if (++job->shards_done < weights_.size()) return;
        if (world_->config().shards == 1) {
          OnCommitted(*job, absl::OkStatus());
        } else {
          Commit(job);
        }
      }));
}

void SimWorker::Commit(std::shared_ptr<Job> job) {
  ps::CommitRequest request;
  *request.mutable_key() = job->key;
  if (!job->is_void) request.mutable_info()->set_samples(SamplesOf(*job));
  request.mutable_info()->set_compute_seconds(job->seconds);
  world_->Call<ps::CommitReply>(
      &process_, coordinator()->process(), kLongPoll,
      [server = coordinator(), request](World::Answer<ps::CommitReply> answer) {
        server->Commit(request, std::move(answer));
      },
      InFlow<ps::CommitReply>([this, job](absl::StatusOr<ps::CommitReply> reply) {
        if (!reply.ok() && HandleError(reply.status())) return;
        const bool unknown =
            absl::IsUnavailable(reply.status()) || absl::IsDeadlineExceeded(reply.status());
        if (unknown) {
          world_->RunOn(&process_, world_->Seconds(0.02, 0.2), [this, job, flow = flow_] {
            if (flow == flow_) Commit(job);
          });
          return;
        }
        OnCommitted(*job, reply.status());
      }));
}

void SimWorker::OnCommitted(const Job& job, const absl::Status& status) {
  ++flow_;
  busy_ = waiting_ = false;
  if (!world_->config().sync()) {
    const bool stale = GetErrorDetail(status).kind() == ps::ErrorDetail::STALE;
    AsyncReplica& replica = async_replicas_[job.key.replica()];
    const bool counts = status.ok() || (stale && !world_->config().repeat_stale_batches);
    if (counts && replica.grant == job.key.grant()) replica.position = job.key.position() + 1;
    PullAll(0);
    return;
  }
  if (status.ok() && early_.has_value()) {
    weights_ = {*std::move(early_)};
    StartStep(job.key.step());
  } else if (status.ok()) {
    done_grants_.insert(job.key.grant());
    ComputeNext();
  } else if (GetErrorDetail(status).kind() == ps::ErrorDetail::FENCED) {
    const auto grant = grants_.find(job.key.replica());
    if (grant != grants_.end() && grant->second.grant() == job.key.grant()) grants_.erase(grant);
    Heartbeat();
    ComputeNext();
  } else {
    PullAll(0);
  }
}

}  // namespace pushpull::sim
