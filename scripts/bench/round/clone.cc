#include "scripts/bench/round/clone.h"

#include <time.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/backoff.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/model/sharding.h"
#include "common/model/variable_layout.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "common/wire/security/transport_credentials.h"
#include "worker/client/error_feedback.h"

namespace pushpull {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);

class Clone {
 public:
  Clone(const CloneOptions& options, const TransportOptions& transport)
      : options_(options), client_(MakeGrpcPsClient(options.address, transport)) {}

  absl::Status Join();
  absl::StatusOr<RoundTimes> Round();
  absl::Status KeepLease();

 private:
  absl::Status AwaitOthers(absl::Duration give_up);
  absl::Status Heartbeat();
  absl::Status Push(uint64_t step);
  // Returns a chunk of the gradient, encoded.
  Payload Encoded(int chunk);
  absl::Status Pull(uint64_t min_version, bool exact);

  const CloneOptions options_;
  const std::unique_ptr<PsClient> client_;
  SteadyClock clock_;
  ps::JobReply job_;
  ps::RegisterReply registered_;
  std::unique_ptr<Sharding> sharding_;
  std::shared_ptr<std::vector<float>> gradient_;
  std::vector<float> weights_;
  // Null where the floats are sent as they are.
  std::shared_ptr<char[]> encoded_;
  std::unique_ptr<ErrorFeedback> feedback_;
  uint64_t version_ = 0;
  absl::Duration last_heartbeat_;
};

absl::Duration ProcessCpuTime() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

absl::Status Clone::Join() {
  Backoff backoff({}, options_.clone);
  const absl::Duration give_up = clock_.Now() + kTimeout;
  while (true) {
    auto job = client_->GetJob(ps::JobRequest(), kTimeout);
    if (job.ok()) {
      job_ = *std::move(job);
      break;
    }
    if (!absl::IsUnavailable(job.status()) || clock_.Now() > give_up) return job.status();
    clock_.Sleep(backoff.Next());
  }
  std::vector<VariableSpec> variables;
  ps::RegisterRequest request;
  request.set_run_id(job_.run_id());
  request.set_worker_id(options_.clone);
  request.set_num_replicas(options_.num_clones);
  request.set_peer_name(absl::StrCat("ps_round clone ", options_.clone));
  request.set_layout_signature(job_.layout_signature());
  request.set_protocol_version(job_.protocol_version());
  for (const auto& entry : job_.variables()) {
    VariableSpec variable;
    variable.name = entry.name();
    variable.shape.assign(entry.shape().begin(), entry.shape().end());
    if (entry.moving_statistic()) variable.kind = VariableKind::kMovingStatistic;
    variables.push_back(std::move(variable));
    *request.add_variables() = entry;
  }
  PP_ASSIGN_OR_RETURN(const VariableLayout layout, VariableLayout::Create(std::move(variables)));
  sharding_ = std::make_unique<Sharding>(layout.total_elements(), 1);
  gradient_ = std::make_shared<std::vector<float>>(layout.total_elements(), 1e-6f);
  weights_.resize(layout.total_elements());
  if (!options_.gradient_codec->is_float32()) {
    encoded_.reset(new char[options_.gradient_codec->EncodedBytes(layout.total_elements())]);
  }
  if (options_.gradient_codec->needs_error_feedback()) {
    feedback_ = std::make_unique<ErrorFeedback>(layout.total_elements(), MovingStatisticsOf(layout),
                                                options_.gradient_codec);
  }
  absl::StatusOr<ps::RegisterReply> registered = client_->Register(request, kTimeout);
  // The server already listens for a moment before its variables are restored.
  while (absl::IsUnavailable(registered.status()) && clock_.Now() < give_up) {
    clock_.Sleep(absl::Milliseconds(20));
    registered = client_->Register(request, kTimeout);
  }
  PP_ASSIGN_OR_RETURN(registered_, std::move(registered));
  last_heartbeat_ = clock_.Now();
  PP_RETURN_IF_ERROR(AwaitOthers(give_up));
  return Pull(registered_.version(), /*exact=*/false);
}

// Waits until every clone holds a replica: the first clones temporarily hold those of later ones.
absl::Status Clone::AwaitOthers(absl::Duration give_up) {
  while (true) {
    PP_ASSIGN_OR_RETURN(const ps::StatusReply status, client_->GetStatus({}, kTimeout));
    int settled = 0;
    for (const auto& clone : status.clones())
      settled += clone.alive() && clone.replicas_size() == 1;
    if (settled == static_cast<int>(options_.num_clones)) return Heartbeat();
    if (clock_.Now() > give_up) {
      return absl::DeadlineExceededError(
          absl::StrCat("only ", settled, " of ", options_.num_clones, " clones have joined"));
    }
    clock_.Sleep(absl::Milliseconds(20));
    PP_RETURN_IF_ERROR(KeepLease());
  }
}

absl::Status Clone::KeepLease() {
  if (clock_.Now() - last_heartbeat_ < absl::Seconds(1)) return absl::OkStatus();
  return Heartbeat();
}

absl::Status Clone::Heartbeat() {
  ps::HeartbeatRequest request;
  request.set_run_id(job_.run_id());
  request.set_epoch(registered_.epoch());
  request.set_worker_id(options_.clone);
  PP_ASSIGN_OR_RETURN(const ps::HeartbeatReply reply, client_->Heartbeat(request, kTimeout));
  if (!reply.grants().empty()) *registered_.mutable_grants() = reply.grants();
  last_heartbeat_ = clock_.Now();
  return absl::OkStatus();
}

Payload Clone::Encoded(int chunk) {
  const ElementRange range = sharding_->chunk(0, chunk);
  const absl::Span<const float> floats(gradient_->data() + range.begin, range.size());
  const GradientCodec& codec = *options_.gradient_codec;
  const size_t size_bytes = codec.EncodedBytes(range.size());
  if (encoded_ == nullptr) {
    return {gradient_, reinterpret_cast<const char*>(floats.data()), size_bytes};
  }
  // Chunks before this one have whole blocks, so their bytes lie before these.
  char* const encoded = encoded_.get() + codec.EncodedBytes(range.begin);
  if (feedback_ != nullptr) {
    feedback_->Encode(range.begin, floats, encoded);
  } else {
    codec.Encode(floats, encoded);
  }
  return {encoded_, encoded, size_bytes};
}

absl::Status Clone::Push(uint64_t step) {
  ps::PushChunk header;
  header.set_encoding(options_.gradient_codec->encoding());
  ps::PushKey* key = header.mutable_key();
  key->set_run_id(job_.run_id());
  key->set_epoch(registered_.epoch());
  key->set_step(step);
  key->set_replica(registered_.grants(0).replica());
  key->set_grant(registered_.grants(0).grant());
  key->set_mac(registered_.grants(0).mac());
  key->set_worker_id(options_.clone);
  key->set_base_version(version_);
  auto stream = client_->StartPush(kTimeout);
  // Sends from the end, because the backward pass fills the gradient from there.
  for (int chunk = sharding_->num_chunks(0) - 1; chunk >= 0; --chunk) {
    header.set_chunk(chunk);
    if (chunk == 0) header.mutable_commit()->set_samples(32);
    if (!stream->Send(header, Encoded(chunk)).ok()) break;
  }
  PP_ASSIGN_OR_RETURN(const ps::PushReply reply, stream->Finish());
  if (reply.outcome() == ps::PushReply::ACCEPTED) {
    if (feedback_ != nullptr) feedback_->Accept();
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("push: ", reply.ShortDebugString()));
}

absl::Status Clone::Pull(uint64_t min_version, bool exact) {
  ps::PullRequest request;
  request.set_run_id(job_.run_id());
  request.set_epoch(registered_.epoch());
  request.set_min_version(min_version);
  request.set_exact(exact);
  request.set_worker_id(options_.clone);
  *request.mutable_grant() = registered_.grants(0);
  const GradientCodec& codec = *options_.weight_codec;
  request.set_encoding(codec.encoding());
  std::vector<char> encoded(codec.is_float32() ? 0 : codec.EncodedBytes(Sharding::kChunkElements));
  std::optional<ElementRange> encoded_range;
  const auto decode = [&] {
    if (!encoded_range.has_value()) return;
    codec.Decode(encoded.data(), encoded_range->size(), 0, encoded_range->size(),
                 weights_.data() + encoded_range->begin);
    encoded_range.reset();
  };
  const auto sink = [&](const ps::PullChunk& header, size_t size_bytes) -> absl::StatusOr<char*> {
    if (header.chunk() >= sharding_->num_chunks(0)) return absl::InternalError("chunk number");
    const ElementRange range = sharding_->chunk(0, header.chunk());
    if (static_cast<int64_t>(size_bytes) != codec.EncodedBytes(range.size())) {
      return absl::InternalError("chunk size");
    }
    version_ = header.version();
    if (codec.is_float32()) return reinterpret_cast<char*>(weights_.data() + range.begin);
    decode();
    encoded_range = range;
    return encoded.data();
  };
  PP_RETURN_IF_ERROR(client_->Pull(request, kTimeout, sink));
  decode();
  return absl::OkStatus();
}

absl::StatusOr<RoundTimes> Clone::Round() {
  RoundTimes times;
  const absl::Duration begin = clock_.Now();
  const absl::Duration cpu_begin = ProcessCpuTime();
  const uint64_t step = version_ + 1;
  PP_RETURN_IF_ERROR(Push(step));
  times.push = clock_.Now() - begin;
  PP_RETURN_IF_ERROR(Pull(step, /*exact=*/true));
  times.total = clock_.Now() - begin;
  times.cpu = ProcessCpuTime() - cpu_begin;
  return times;
}

}  // namespace

absl::StatusOr<std::vector<RoundTimes>> RunRounds(const CloneOptions& options) {
  TransportOptions transport;
  transport.shared_memory = options.shared_memory;
  PP_ASSIGN_OR_RETURN(transport.credentials,
                      TransportCredentials::Create(options.security, {PeerRole::kWorker}));
  Clone clone(options, transport);
  PP_RETURN_IF_ERROR(clone.Join());
  std::vector<RoundTimes> all;
  for (int i = 0; i < options.rounds; ++i) {
    PP_ASSIGN_OR_RETURN(const RoundTimes times, clone.Round());
    all.push_back(times);
    PP_RETURN_IF_ERROR(clone.KeepLease());
  }
  return all;
}

}  // namespace pushpull
