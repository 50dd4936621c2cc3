// Tested by tests/worker/client/ps_session_test.cc.
// How PsSession pulls the variables: chunk by chunk, checked, and decoded where they are encoded.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "worker/client/ps_session.h"

namespace pushpull {

absl::Status PsSession::PullShard(int shard, absl::Duration pull_begun, uint64_t min_version,
                                  bool exact, absl::Duration poll_timeout, absl::Span<float> flat,
                                  const ElementsReady& on_elements, uint64_t* version) {
  const Sharding sharding(static_cast<int64_t>(flat.size()), static_cast<int>(clients_.size()));
  ps::PullRequest request;
  request.set_run_id(job_.run_id());
  request.set_epoch(epoch());
  request.set_shard(shard);
  request.set_min_version(min_version);
  request.set_exact(exact);
  request.set_worker_id(options_.worker_id);
  if (const std::vector<ps::ReplicaGrant> held = grants(); !held.empty()) {
    *request.mutable_grant() = held.front();
  }
  request.set_wait_milliseconds(absl::ToInt64Milliseconds(poll_timeout));
  const GradientCodec* const codec = options_.weight_codec;
  request.set_encoding(codec->encoding());
  std::shared_ptr<const ExactElements> unrounded;  // null: every chunk has the same encoding
  if (!codec->is_float32()) {
    absl::MutexLock lock(&mutex_);
    unrounded = exact_;
  }
  const auto codec_of = [&](int chunk) {
    const bool rounds = unrounded == nullptr || !unrounded->Overlap(sharding.chunk(shard, chunk));
    return rounds ? codec : &Float32Codec();
  };
  for (int chunk = 0; chunk < sharding.num_chunks(shard); ++chunk) {
    if (codec_of(chunk) != codec) request.add_float32_chunks(chunk);
  }
  std::unique_ptr<char[]> encoded;  // a chunk; null if all were floats so far
  int next_chunk = 0;
  // Decodes and reports the chunk before next_chunk. Its checksum has been verified when the sink
  // is called for the following chunk, or when the pull has succeeded.
  const auto chunk_is_there = [&] {
    if (next_chunk == 0) {
      if (on_elements && shard == 0) on_elements(0, 0);
      return;
    }
    const ElementRange range = sharding.chunk(shard, next_chunk - 1);
    if (codec_of(next_chunk - 1) != codec) {
      unrounded->RoundOthers(
          *codec, [&](absl::Span<const float> chunk, char* bytes) { codec->Encode(chunk, bytes); },
          range.begin, flat.subspan(range.begin, range.size()));
    } else if (!codec->is_float32()) {
      codec->Decode(encoded.get(), range.size(), 0, range.size(), flat.data() + range.begin);
    }
    if (on_elements) on_elements(range.begin, range.end);
  };
  const auto sink = [&](const ps::PullChunk& header, size_t size_bytes) -> absl::StatusOr<char*> {
    chunk_is_there();
    if (next_chunk == sharding.num_chunks(shard)) {
      return absl::DataLossError(absl::StrCat(PeerName(shard), " sent more chunks of shard ", shard,
                                              " than the ", next_chunk, " it has"));
    }
    const ElementRange range = sharding.chunk(shard, next_chunk);
    const GradientCodec* const expected = codec_of(next_chunk);
    const size_t expected_bytes = expected->EncodedBytes(range.size());
    if (header.shard() != shard || header.chunk() != next_chunk ||
        header.encoding() != expected->encoding() || size_bytes != expected_bytes ||
        (next_chunk > 0 && header.version() != *version)) {
      return absl::DataLossError(absl::StrCat(
          PeerName(shard), " sent chunk ", header.chunk(), " of shard ", header.shard(),
          " at version ", header.version(), " with ", size_bytes, " bytes in encoding ",
          static_cast<int>(header.encoding()), ", expected chunk ", next_chunk, " with ",
          expected_bytes, " bytes as ", expected->flag()));
    }
    *version = header.version();
    ++next_chunk;
    if (expected->is_float32()) return reinterpret_cast<char*>(flat.data() + range.begin);
    if (encoded == nullptr) {
      encoded.reset(new char[codec->EncodedBytes(Sharding::kChunkElements)]);
    }
    return encoded.get();
  };
  const absl::Duration timeout = poll_timeout + options_.rpc_timeout;
  const absl::Duration start = clock_->Now();
  absl::Status pulled = clients_[shard]->Pull(request, timeout, sink);
  if (pulled.ok() && next_chunk != sharding.num_chunks(shard)) {
    pulled = absl::UnavailableError(absl::StrCat(PeerName(shard), " sent ", next_chunk, " of ",
                                                 sharding.num_chunks(shard), " chunks"));
  }
  // A DEADLINE_EXCEEDED before the call's timeout comes from the server, which does not have the
  // version yet; that counts as an answer.
  const bool not_yet = absl::IsDeadlineExceeded(pulled) && clock_->Now() - start < timeout;
  {
    absl::MutexLock lock(&mutex_);
    Note(pull_begun, not_yet ? absl::OkStatus() : pulled, &pulls_[shard]);
  }
  PP_RETURN_IF_ERROR(pulled);
  chunk_is_there();
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> PsSession::Pull(uint64_t min_version, bool exact,
                                         absl::Duration poll_timeout, absl::Span<float> flat,
                                         const ElementsReady& on_elements) {
  uint64_t result = 0;
  // A pull that fails at shard k starts again at shard 0. Each shard's attempt therefore counts
  // from the start of the whole pull; otherwise the time of the earlier shards would look like a
  // pause between the failures of shard k.
  const absl::Duration begun = clock_->Now();
  for (int shard = 0; shard < static_cast<int>(clients_.size()); ++shard) {
    uint64_t version = 0;
    PP_RETURN_IF_ERROR(
        PullShard(shard, begun, min_version, exact, poll_timeout, flat, on_elements, &version));
    if (exact && version != min_version) {
      return absl::DataLossError(absl::StrCat(PeerName(shard), " sent version ", version,
                                              " of shard ", shard, ", expected version ",
                                              min_version));
    }
    // In asynchronous mode shards advance independently. A gradient is as old as the oldest part of
    // its weights.
    result = shard == 0 ? version : std::min(result, version);
  }
  NoteVersion(result);
  return result;
}

}  // namespace pushpull
