// Tested by tests/worker/client/ps_session_test.cc.
// How PsSession pulls the variables: chunk by chunk, checked, and decoded where they are encoded.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "worker/client/ps_session.h"

namespace pushpull {
namespace {

// The chunks of one shard in one pull: checks that each is the one that has to come, and decodes it
// to its place in the flat vector.
class ShardPull {
 public:
  // peer: the server, for messages. exact: null if every chunk has the encoding of `codec`. The
  // other arguments outlive the object.
  ShardPull(std::string peer, int shard, int tasks, const GradientCodec* codec,
            std::shared_ptr<const ExactElements> exact, absl::Span<float> flat,
            const PsSession::ElementsReady& on_elements)
      : peer_(std::move(peer)),
        shard_(shard),
        sharding_(static_cast<int64_t>(flat.size()), tasks),
        num_chunks_(sharding_.num_chunks(shard)),
        codec_(codec),
        exact_(std::move(exact)),
        flat_(flat),
        on_elements_(on_elements) {}

  // Asks for the encodings in which Place expects the chunks.
  void SetEncodings(ps::PullRequest* request) const {
    request->set_encoding(codec_->encoding());
    for (int chunk = 0; chunk < num_chunks_; ++chunk) {
      if (CodecOf(chunk) != codec_) request->add_float32_chunks(chunk);
    }
  }

  // Returns the address for the bytes of a chunk that arrives. DATA_LOSS: another chunk has to
  // come.
  absl::StatusOr<char*> Place(const ps::PullChunk& header, size_t size_bytes) {
    NoteArrival();
    if (next_chunk_ == num_chunks_) {
      return absl::DataLossError(absl::StrCat(peer_, " sent more chunks of shard ", shard_,
                                              " than the ", next_chunk_, " it has"));
    }
    const ElementRange range = sharding_.chunk(shard_, next_chunk_);
    const GradientCodec* const expected = CodecOf(next_chunk_);
    const size_t expected_bytes = expected->EncodedBytes(range.size());
    if (static_cast<int>(header.shard()) != shard_ ||
        static_cast<int>(header.chunk()) != next_chunk_ ||
        header.encoding() != expected->encoding() || size_bytes != expected_bytes ||
        (next_chunk_ > 0 && header.version() != version_)) {
      return absl::DataLossError(absl::StrCat(
          peer_, " sent chunk ", header.chunk(), " of shard ", header.shard(), " at version ",
          header.version(), " with ", size_bytes, " bytes in encoding ",
          static_cast<int>(header.encoding()), ", expected chunk ", next_chunk_, " with ",
          expected_bytes, " bytes as ", expected->flag()));
    }
    version_ = header.version();
    ++next_chunk_;
    if (expected->is_float32()) return reinterpret_cast<char*>(flat_.data() + range.begin);
    if (encoded_ == nullptr) {
      encoded_.reset(new char[codec_->EncodedBytes(Sharding::kChunkElements)]);
    }
    return encoded_.get();
  }

  // UNAVAILABLE: not all chunks have come.
  absl::Status CheckComplete() const {
    if (next_chunk_ == num_chunks_) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat(peer_, " sent ", next_chunk_, " of ", num_chunks_, " chunks"));
  }

  // Decodes and reports the chunk that was placed last. Its checksum has been verified when the
  // following chunk arrives, or when the pull has succeeded.
  void NoteArrival() {
    if (next_chunk_ == 0) {
      if (on_elements_ && shard_ == 0) on_elements_(0, 0);
      return;
    }
    const ElementRange range = sharding_.chunk(shard_, next_chunk_ - 1);
    if (CodecOf(next_chunk_ - 1) != codec_) {
      exact_->RoundOthers(
          *codec_,
          [&](absl::Span<const float> chunk, char* bytes) { codec_->Encode(chunk, bytes); },
          range.begin, flat_.subspan(range.begin, range.size()));
    } else if (!codec_->is_float32()) {
      codec_->Decode(encoded_.get(), range.size(), 0, range.size(), flat_.data() + range.begin);
    }
    if (on_elements_) on_elements_(range.begin, range.end);
  }

  uint64_t version() const { return version_; }  // of the chunks

 private:
  const GradientCodec* CodecOf(int chunk) const {
    const bool rounds = exact_ == nullptr || !exact_->Overlap(sharding_.chunk(shard_, chunk));
    return rounds ? codec_ : &Float32Codec();
  }

  const std::string peer_;
  const int shard_;
  const Sharding sharding_;
  const int num_chunks_;
  const GradientCodec* const codec_;
  const std::shared_ptr<const ExactElements> exact_;
  const absl::Span<float> flat_;
  const PsSession::ElementsReady& on_elements_;

  int next_chunk_ = 0;
  uint64_t version_ = 0;
  std::unique_ptr<char[]> encoded_;  // the chunk placed last; null if all were floats so far
};

}  // namespace

absl::Status PsSession::PullShard(int shard, absl::Duration pull_begun, uint64_t min_version,
                                  bool exact, absl::Duration poll_timeout, absl::Span<float> flat,
                                  const ElementsReady& on_elements, uint64_t* version) {
  ps::PullRequest request;
  request.set_run_id(run_id());
  request.set_epoch(epoch());
  request.set_shard(shard);
  request.set_min_version(min_version);
  request.set_exact(exact);
  request.set_worker_id(options_.worker_id);
  if (const std::vector<ps::ReplicaGrant> held = grants(); !held.empty()) {
    *request.mutable_grant() = held.front();
  }
  request.set_wait_milliseconds(absl::ToInt64Milliseconds(poll_timeout));
  std::shared_ptr<const ExactElements> unrounded;
  if (!options_.weight_codec->is_float32()) {
    absl::MutexLock lock(&mutex_);
    unrounded = exact_;
  }
  ShardPull pull(PeerName(shard), shard, static_cast<int>(clients_.size()), options_.weight_codec,
                 std::move(unrounded), flat, on_elements);
  pull.SetEncodings(&request);
  const absl::Duration timeout = poll_timeout + options_.rpc_timeout;
  const absl::Duration start = clock_->Now();
  absl::Status pulled =
      clients_[shard]->Pull(request, timeout, [&](const ps::PullChunk& header, size_t size_bytes) {
        return pull.Place(header, size_bytes);
      });
  if (pulled.ok()) pulled = pull.CheckComplete();
  // A DEADLINE_EXCEEDED before the call's timeout comes from the server, which does not have the
  // version yet; that counts as an answer.
  const bool not_yet = absl::IsDeadlineExceeded(pulled) && clock_->Now() - start < timeout;
  {
    absl::MutexLock lock(&mutex_);
    Note(pull_begun, not_yet ? absl::OkStatus() : pulled, &pulls_[shard]);
  }
  PP_RETURN_IF_ERROR(pulled);
  pull.NoteArrival();
  *version = pull.version();
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
