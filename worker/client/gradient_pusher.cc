#include "worker/client/gradient_pusher.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "glog/logging.h"

namespace pushpull {
namespace {

absl::Status Abandoned() { return absl::CancelledError("the contribution was abandoned"); }

}  // namespace

GradientPusher::GradientPusher(std::vector<PsClient*> shards, const Sharding& sharding,
                               const Clock* clock, const GradientPusherOptions& options)
    : shards_(std::move(shards)),
      sharding_(sharding),
      clock_(clock),
      options_(options),
      result_(absl::FailedPreconditionError("nothing was pushed")) {
  CHECK_EQ(static_cast<int>(shards_.size()), sharding_.tasks());
  if (!options_.codec->is_float32()) {
    int64_t bytes = 0;
    for (int shard = 0; shard < sharding_.tasks(); ++shard) {
      encoded_at_.emplace_back();
      for (int chunk = 0; chunk < sharding_.num_chunks(shard); ++chunk) {
        encoded_at_.back().push_back(bytes);
        bytes += CodecOf(shard, chunk).EncodedBytes(sharding_.chunk(shard, chunk).size());
      }
    }
    encoded_.reset(new char[bytes]);
  }
  if (options_.codec->needs_error_feedback()) {
    feedback_ = std::make_unique<ErrorFeedback>(sharding_.total_elements(),
                                                options_.moving_statistics, options_.codec);
  }
  thread_ = std::thread([this] { RunThread(); });
}

GradientPusher::~GradientPusher() {
  {
    absl::MutexLock lock(&mutex_);
    job_.abandoned = true;
    stop_ = true;
  }
  thread_.join();
}

void GradientPusher::Start(const ps::PushKey& key, std::shared_ptr<const float> gradient,
                           bool commit_with_chunks) {
  absl::MutexLock lock(&mutex_);
  CHECK(!sending_) << "a contribution is still on its way";
  job_ =
      Job{key,  std::move(gradient), commit_with_chunks, sharding_.total_elements(), std::nullopt,
          false};
  sending_ = true;
  repeated_ = false;
}

void GradientPusher::Advance(int64_t first_final) {
  absl::MutexLock lock(&mutex_);
  job_.first_final = first_final;
}

void GradientPusher::Commit(const ps::CommitInfo& commit) {
  absl::MutexLock lock(&mutex_);
  job_.first_final = 0;
  job_.commit = commit;
}

absl::StatusOr<ps::PushReply> GradientPusher::Repeat(const ps::CommitInfo& commit) {
  {
    absl::MutexLock lock(&mutex_);
    CHECK(!sending_ && job_.gradient != nullptr);
    job_.first_final = 0;
    job_.commit = commit;
    sending_ = true;
  }
  repeated_ = true;
  return Await();
}

void GradientPusher::NoteOutcome(ps::PushReply::Outcome outcome, bool repeated) {
  {
    absl::MutexLock lock(&mutex_);
    CHECK(!sending_) << "the contribution is still on its way";
  }
  // ALREADY_APPLIED to the first attempt means that the step was decided without this contribution.
  // To a repetition it nearly always means that an earlier attempt has arrived, although its answer
  // was lost.
  const bool counts = outcome == ps::PushReply::ACCEPTED || outcome == ps::PushReply::DUPLICATE ||
                      (outcome == ps::PushReply::ALREADY_APPLIED && repeated);
  if (feedback_ != nullptr && counts) feedback_->Accept();
}

void GradientPusher::Abandon() {
  {
    absl::MutexLock lock(&mutex_);
    job_.abandoned = true;
  }
  Await().IgnoreError();
}

absl::StatusOr<ps::PushReply> GradientPusher::Await() {
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !sending_; };
  mutex_.Await(absl::Condition(&idle));
  return result_;
}

int GradientPusher::failed_shard() const {
  absl::MutexLock lock(&mutex_);
  return failed_shard_;
}

void GradientPusher::RunThread() {
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || sending_; };
      mutex_.Await(absl::Condition(&ready));
      if (stop_) return;
    }
    absl::StatusOr<ps::PushReply> result = SendAll();
    absl::MutexLock lock(&mutex_);
    result_ = std::move(result);
    sending_ = false;
  }
}

absl::StatusOr<ps::PushReply> GradientPusher::SendAll() {
  // The last shard holds the end of the gradient, which backward finishes first.
  std::vector<std::unique_ptr<PushStream>> streams(shards_.size());
  absl::Duration begin;
  for (int shard = sharding_.tasks() - 1; shard >= 0; --shard) {
    // Start the stream only when its first chunk can be sent: the server gives up a push whose next
    // chunk does not come for a while (ServerLimits::push_idle), and backward may take longer.
    const int last_chunk = sharding_.num_chunks(shard) - 1;
    if (!WaitForElements(sharding_.chunk(shard, last_chunk).begin)) return Abandoned();
    if (shard == sharding_.tasks() - 1) begin = clock_->Now();
    streams[shard] = shards_[shard]->StartPush(options_.rpc_timeout);
    if (!SendShard(shard, streams[shard].get())) return Abandoned();
  }
  absl::StatusOr<ps::PushReply> reply = FinishAll(streams);
  if (options_.row != nullptr) {
    absl::MutexLock lock(&mutex_);
    options_.row->Add("send", begin, clock_->Now(),
                      {{"step", job_.key.step()}, {"replica", uint64_t{job_.key.replica()}}});
  }
  return reply;
}

absl::StatusOr<ps::PushReply> GradientPusher::FinishAll(
    const std::vector<std::unique_ptr<PushStream>>& streams) {
  absl::StatusOr<ps::PushReply> reply = absl::InternalError("no shard");
  for (int shard = sharding_.tasks() - 1; shard >= 0; --shard) {
    reply = streams[shard]->Finish();
    if (reply.ok() && reply->outcome() == ps::PushReply::INCOMPLETE) {
      reply = absl::UnavailableError("the shard misses chunks of the contribution; send it again");
    }
    if (reply.ok()) continue;
    absl::MutexLock lock(&mutex_);
    failed_shard_ = shard;
    return reply;
  }
  absl::MutexLock lock(&mutex_);
  failed_shard_ = 0;
  return reply;
}

bool GradientPusher::SendShard(int shard, PushStream* stream) {
  ps::PushChunk header;
  std::shared_ptr<const float> gradient;
  bool commit_with_chunks;
  {
    absl::MutexLock lock(&mutex_);
    *header.mutable_key() = job_.key;
    gradient = job_.gradient;
    commit_with_chunks = job_.commit_with_chunks;
  }
  header.set_shard(shard);
  for (int chunk = sharding_.num_chunks(shard) - 1; chunk >= 0; --chunk) {
    const ElementRange range = sharding_.chunk(shard, chunk);
    if (!WaitForElements(range.begin)) return false;
    if (chunk == 0 && commit_with_chunks) {
      std::optional<ps::CommitInfo> commit = WaitForCommit();
      if (!commit.has_value()) return false;
      *header.mutable_commit() = *std::move(commit);
    }
    header.set_chunk(chunk);
    header.set_encoding(CodecOf(shard, chunk).encoding());
    const absl::Status sent = stream->Send(header, Encoded(gradient, shard, chunk));
    if (!sent.ok()) return true;  // Finish returns the reason
  }
  // The next shard may take longer than the server waits for another chunk of this one.
  stream->EndSending();
  return true;
}

const GradientCodec& GradientPusher::CodecOf(int shard, int chunk) const {
  return options_.exact.Overlap(sharding_.chunk(shard, chunk)) ? Float32Codec() : *options_.codec;
}

Payload GradientPusher::Encoded(const std::shared_ptr<const float>& gradient, int shard,
                                int chunk) {
  const ElementRange range = sharding_.chunk(shard, chunk);
  const float* const elements = gradient.get() + range.begin;
  const GradientCodec& codec = CodecOf(shard, chunk);
  const size_t bytes = codec.EncodedBytes(range.size());
  if (encoded_ == nullptr) return {gradient, reinterpret_cast<const char*>(elements), bytes};
  char* const encoded = encoded_.get() + encoded_at_[shard][chunk];
  const auto encode = [&](absl::Span<const float> values, char* to) {
    if (feedback_ != nullptr) {
      feedback_->Encode(range.begin, values, to);
    } else {
      options_.codec->Encode(values, to);
    }
  };
  if (!codec.is_float32()) {
    encode({elements, static_cast<size_t>(range.size())}, encoded);
  } else {
    std::vector<float> rounded(elements, elements + range.size());
    options_.exact.RoundOthers(*options_.codec, encode, range.begin, absl::MakeSpan(rounded));
    std::memcpy(encoded, rounded.data(), bytes);
  }
  return {encoded_, encoded, bytes};
}

bool GradientPusher::WaitForElements(int64_t first) {
  absl::MutexLock lock(&mutex_);
  const auto ready = [this, first]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return job_.abandoned || job_.first_final <= first;
  };
  mutex_.Await(absl::Condition(&ready));
  return !job_.abandoned;
}

std::optional<ps::CommitInfo> GradientPusher::WaitForCommit() {
  absl::MutexLock lock(&mutex_);
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return job_.abandoned || job_.commit.has_value();
  };
  mutex_.Await(absl::Condition(&ready));
  return job_.abandoned ? std::nullopt : job_.commit;
}

}  // namespace pushpull
