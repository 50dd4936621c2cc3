// Tested by tests/ps_server/core/shard_orders_test.cc.
#include "ps_server/core/shard_aggregator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

#include "common/base/status_macros.h"
#include "common/wire/gradient_codec.h"
#include "common/wire/protocol_version.h"
#include "ps_server/core/protocol_error.h"

namespace pushpull {
namespace {

ContributionId IdOf(const ps::PushKey& key) { return {key.grant(), key.step()}; }

}  // namespace

std::vector<int64_t> ChunkElements(const Sharding& sharding, int shard) {
  std::vector<int64_t> elements;
  for (int i = 0; i < sharding.num_chunks(shard); ++i) {
    elements.push_back(sharding.chunk(shard, i).size());
  }
  return elements;
}

absl::StatusOr<ps::PushReply> PushReplyOf(const absl::StatusOr<ps::CommitReply>& commit) {
  if (!commit.ok()) return commit.status();
  ps::PushReply reply;
  reply.set_outcome(commit->outcome());
  reply.set_level(commit->level());
  reply.set_version(commit->version());
  reply.set_staleness(commit->staleness());
  reply.set_new_grants_step(commit->new_grants_step());
  return reply;
}

ShardAggregator::ShardAggregator(ShardOptions options)
    : options_(std::move(options)),
      held_versions_(options_.held_versions),
      staging_(static_cast<int>(options_.chunk_elements.size())),
      expected_(options_.sync, options_.tasks) {}

ShardActions ShardAggregator::Handle(const ShardEvent& event) {
  actions_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  return std::exchange(actions_, {});
}

ps::ShardStateReply ShardAggregator::State() const {
  ps::ShardStateReply state;
  if (!held_versions_.empty()) state.set_run_id(options_.run_id);
  state.set_boot_id(options_.boot_id);
  state.set_epoch(restored_ ? epoch_ : 0);
  for (const VersionId& id : held_versions_) {
    ps::HeldVersion& held = *state.add_held();
    held.set_version(id.version);
    held.set_epoch(id.epoch);
  }
  state.set_shard(options_.shard);
  state.set_job_run_id(options_.run_id);
  state.set_protocol_version(kProtocolVersion);
  return state;
}

absl::Status ShardAggregator::CheckIdentity(const std::string& run_id, uint64_t epoch) const {
  if (run_id != options_.run_id) {
    return ProtocolError(
        ps::ErrorDetail::WRONG_RUN, 0, 0,
        "this server trains another job (run_id differs): check the address, or restart "
        "the worker if the job was started anew");
  }
  if (epoch < epoch_) {
    return ProtocolError(
        ps::ErrorDetail::EPOCH_CHANGED, epoch_, version_,
        absl::StrFormat("epoch %d is over, the present epoch is %d: register again", epoch,
                        epoch_));
  }
  if (!restored_ || epoch > epoch_) {
    return ProtocolError(ps::ErrorDetail::NOT_READY, epoch_, 0,
                         absl::StrFormat("shard %d is not restored yet", options_.shard));
  }
  return absl::OkStatus();
}

absl::Status ShardAggregator::CheckSender(const std::string& run_id, uint64_t epoch) const {
  PP_RETURN_IF_ERROR(closed_);
  return CheckIdentity(run_id, epoch);
}

absl::Status ShardAggregator::CheckKey(const ps::PushKey& key) const {
  if (key.replica() >= kMaxReplicas) {
    return ProtocolError(
        ps::ErrorDetail::BAD_CHUNK, 0, 0,
        absl::StrFormat("replica %d is not below %d", key.replica(), kMaxReplicas));
  }
  if (options_.sync && key.step() > version_ + 1) {
    return ProtocolError(ps::ErrorDetail::STEP_TOO_NEW, epoch_, version_ + 1,
                         absl::StrFormat("shard %d expects contributions for step %d, not %d",
                                         options_.shard, version_ + 1, key.step()));
  }
  if (key.grant() < staging_.newest_grant(key.replica())) {
    return ProtocolError(
        ps::ErrorDetail::FENCED, epoch_, version_,
        absl::StrFormat("replica %d has been granted anew (%d after %d)", key.replica(),
                        staging_.newest_grant(key.replica()), key.grant()));
  }
  return absl::OkStatus();
}

bool ShardAggregator::AlreadyApplied(const ps::PushKey& key) const {
  if (options_.sync) {
    return key.step() <= (store_task_ == StoreTask::kApplying ? apply_.step() : version_);
  }
  const auto next = next_positions_.find(key.replica());
  return next != next_positions_.end() && key.position() < next->second;
}

absl::Status ShardAggregator::PushChunk(const ps::PushChunk& header, const Payload& payload,
                                        const absl::Status& verdict) {
  const ps::PushKey& key = header.key();
  PP_RETURN_IF_ERROR(CheckSender(key.run_id(), key.epoch()));
  const GradientCodec* const codec = FindGradientCodec(header.encoding());
  if (header.shard() != options_.shard || header.chunk() >= options_.chunk_elements.size() ||
      codec == nullptr ||
      static_cast<int64_t>(payload.size_bytes) !=
          codec->EncodedBytes(options_.chunk_elements[header.chunk()])) {
    return ProtocolError(
        ps::ErrorDetail::BAD_CHUNK, 0, 0,
        absl::StrFormat("chunk %d of shard %d with %d bytes in encoding %d came to shard %d, which "
                        "has %d chunks",
                        header.chunk(), header.shard(), payload.size_bytes,
                        static_cast<int>(header.encoding()), options_.shard,
                        options_.chunk_elements.size()));
  }
  if (AlreadyApplied(key)) {
    ++duplicate_chunks_;
    return absl::OkStatus();
  }
  PP_RETURN_IF_ERROR(CheckKey(key));
  PP_RETURN_IF_ERROR(verdict);
  switch (staging_.Add(key.replica(), IdOf(key), header.chunk(), header.crc32c(),
                       {header.encoding(), payload})) {
    case Staging::Added::kNew:
      ApplyAhead(key, header.chunk());
      return absl::OkStatus();
    case Staging::Added::kDuplicate:
    case Staging::Added::kOutdated:
      ++duplicate_chunks_;
      return absl::OkStatus();
    case Staging::Added::kConflict:
      return ProtocolError(
          ps::ErrorDetail::CHUNK_CONFLICT, epoch_, version_,
          absl::StrFormat("chunk %d of replica %d for step %d is here with other bytes; the "
                          "first stays",
                          header.chunk(), key.replica(), key.step()));
    case Staging::Added::kFenced:
      break;
  }
  return ProtocolError(ps::ErrorDetail::FENCED, epoch_, version_,
                       absl::StrFormat("replica %d has been granted anew", key.replica()));
}

void ShardAggregator::On(const shard_event::FinishPush& event) {
  const ps::PushKey& key = event.last.key();
  absl::Status status = closed_;
  if (status.ok()) status = CheckIdentity(key.run_id(), key.epoch());
  const bool applied = status.ok() && AlreadyApplied(key);
  if (status.ok() && !applied) status = CheckKey(key);
  if (!status.ok()) {
    actions_.push_back(shard_action::ReplyPush{event.call, status});
    return;
  }
  ps::PushReply reply;
  reply.set_version(version_);
  reply.set_level(applied ? ps::APPLIED : ps::STAGED);
  reply.set_outcome(applied ? ps::PushReply::ALREADY_APPLIED : ps::PushReply::ACCEPTED);
  if (!applied && !staging_.IsComplete(key.replica(), IdOf(key))) {
    reply.set_level(ps::LEVEL_UNKNOWN);
    reply.set_outcome(ps::PushReply::INCOMPLETE);
  } else if (options_.tasks == 1 && event.last.has_commit()) {
    // A contribution that is applied already goes there too: the coordinator counts late ones.
    ps::CommitRequest request;
    *request.mutable_key() = key;
    *request.mutable_info() = event.last.commit();
    actions_.push_back(shard_action::CommitPush{event.call, std::move(request)});
    return;
  }
  actions_.push_back(shard_action::ReplyPush{event.call, std::move(reply)});
}

absl::Status ShardAggregator::CheckFloat32Chunks(const ps::PullRequest& request) const {
  int64_t last = -1;
  for (const uint32_t chunk : request.float32_chunks()) {
    if (chunk <= last || chunk >= options_.chunk_elements.size()) {
      return ProtocolError(
          ps::ErrorDetail::BAD_CHUNK, 0, 0,
          absl::StrFormat("float32_chunks names chunk %d after %d; expected chunks in rising order "
                          "below %d",
                          chunk, last, options_.chunk_elements.size()));
    }
    last = chunk;
  }
  return absl::OkStatus();
}

void ShardAggregator::On(const shard_event::Pull& event) {
  const ps::PullRequest& request = event.request;
  absl::Status status = closed_;
  if (status.ok()) status = CheckIdentity(request.run_id(), request.epoch());
  if (status.ok()) status = CheckFloat32Chunks(request);
  if (status.ok() && request.exact() && version_ > request.min_version()) {
    status = ProtocolError(ps::ErrorDetail::VERSION_GONE, epoch_, version_,
                           absl::StrFormat("version %d was asked for, the present version is %d",
                                           request.min_version(), version_));
  }
  if (!status.ok()) {
    actions_.push_back(shard_action::RefusePull{event.call, status});
  } else if (version_ >= request.min_version()) {
    actions_.push_back(shard_action::ServePull{event.call, epoch_, version_});
  } else {
    pulls_.push_back({event.call, request.min_version()});
  }
}

void ShardAggregator::On(const shard_event::Cancel& event) {
  std::erase_if(pulls_, [&](const WaitingPull& pull) { return pull.call == event.call; });
}

void ShardAggregator::On(const shard_event::Close& event) {
  closed_ = event.reason;
  RefuseWaitingPulls(closed_);
}

void ShardAggregator::RefuseWaitingPulls(const absl::Status& status) {
  for (const WaitingPull& pull : pulls_) {
    actions_.push_back(shard_action::RefusePull{pull.call, status});
  }
  pulls_.clear();
}

void ShardAggregator::ServeWaitingPulls() {
  std::erase_if(pulls_, [this](const WaitingPull& pull) {
    if (pull.min_version > version_) return false;
    actions_.push_back(shard_action::ServePull{pull.call, epoch_, version_});
    return true;
  });
}

}  // namespace pushpull
