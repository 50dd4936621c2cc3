#include "tests/testkit/job/contribution_audit.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "common/base/crc32c.h"
#include "common/wire/gradient_codec.h"
#include "kernels/bfloat16.h"

namespace pushpull {
namespace {

constexpr size_t kMaxProblems = 20;
// Versions kept per shard. They are limited so that a run of a million steps does not fill the
// memory; no clone is that far behind.
constexpr size_t kVersionsKept = 256;

absl::Span<const float> Part(absl::Span<const float> flat, const ElementRange& range) {
  return flat.subspan(range.begin, range.size());
}

template <typename T>
absl::string_view BytesOf(absl::Span<const T> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return BytesOf(a) == BytesOf(b);
}

absl::Span<const float> Floats(const Payload& payload) {
  return {reinterpret_cast<const float*>(payload.data), payload.size_bytes / sizeof(float)};
}

bool IsSentAs(const Payload& payload, ps::GradientEncoding encoding,
              absl::Span<const float> gradient) {
  if (encoding == ps::FLOAT32) return SameBits(Floats(payload), gradient);
  if (FindGradientCodec(encoding)->needs_error_feedback()) return true;
  std::vector<Bfloat16> halves;
  for (const float value : gradient) halves.push_back(ToBfloat16(value));
  return absl::string_view(payload.data, payload.size_bytes) ==
         BytesOf(absl::MakeConstSpan(halves));
}

std::string Describe(const ps::PushKey& key) {
  return absl::StrCat("clone ", key.worker_id(), ", epoch ", key.epoch(), ", step ", key.step(),
                      ", replica ", key.replica(), ", grant ", key.grant(), ", base version ",
                      key.base_version());
}

}  // namespace

void ContributionAudit::Problem(absl::string_view text) {
  if (problems_.size() < kMaxProblems) problems_.emplace_back(text);
}

void ContributionAudit::NotePull(const PullSnapshot& snapshot, ps::GradientEncoding encoding) {
  const GradientCodec* const codec = FindGradientCodec(encoding);
  std::vector<float> weights(Floats(snapshot.payload).begin(), Floats(snapshot.payload).end());
  if (!codec->is_float32()) {
    exact_.RoundOthers(
        *codec,
        [codec](absl::Span<const float> values, char* bytes) { codec->Encode(values, bytes); },
        sharding_.shard(static_cast<int>(snapshot.shard)).begin, absl::MakeSpan(weights));
  }
  absl::MutexLock lock(&mutex_);
  Versions& versions = served_[static_cast<int>(snapshot.shard)];
  const auto [entry, is_new] = versions.try_emplace({snapshot.epoch, snapshot.version});
  if (is_new) {
    entry->second = std::move(weights);
    if (versions.size() > kVersionsKept) versions.erase(versions.begin());
  } else if (!SameBits(entry->second, weights)) {
    Problem(absl::StrCat("shard ", snapshot.shard, " serves version ", snapshot.version,
                         " of epoch ", snapshot.epoch, " with other weights than before"));
  }
}

std::optional<uint64_t> ContributionAudit::VersionOf(int shard, uint64_t epoch, uint64_t preferred,
                                                     absl::Span<const float> weights) const {
  const auto served = served_.find(shard);
  if (served == served_.end()) return std::nullopt;
  const Versions& versions = served->second;
  const auto wanted = versions.find({epoch, preferred});
  if (wanted != versions.end() && SameBits(wanted->second, weights)) return preferred;
  for (auto it = versions.lower_bound({epoch, 0}); it != versions.end() && it->first.first == epoch;
       ++it) {
    if (SameBits(it->second, weights)) return it->first.second;
  }
  return std::nullopt;
}

void ContributionAudit::JudgeKey(const ps::PushKey& key, const Computed& computed) {
  if (key.replica() != computed.replica) {
    Problem(absl::StrCat(Describe(key), ": the gradient is replica ", computed.replica, "'s"));
  }
  if (sync_ && (key.base_version() + 1 != key.step() || computed.position + 1 != key.step())) {
    Problem(absl::StrCat(Describe(key), ": the gradient is of position ", computed.position));
  }
  std::optional<uint64_t> oldest;
  for (int shard = 0; shard < sharding_.tasks(); ++shard) {
    const std::optional<uint64_t> version = VersionOf(
        shard, key.epoch(), key.base_version(), Part(computed.weights, sharding_.shard(shard)));
    if (!version.has_value()) {
      Problem(absl::StrCat(Describe(key), ": the weights of shard ", shard,
                           " do not match any version that was pulled in this epoch"));
      return;
    }
    if (sync_ && *version != key.base_version()) {
      Problem(
          absl::StrCat(Describe(key), ": the weights of shard ", shard, " are version ", *version));
      return;
    }
    oldest = std::min(oldest.value_or(*version), *version);
  }
  // An asynchronous pull may return a different version of each shard; the oldest one counts.
  if (oldest != key.base_version()) {
    Problem(absl::StrCat(Describe(key), ": the oldest weights are version ", *oldest));
  }
}

void ContributionAudit::NoteChunk(const ps::PushChunk& header, const Payload& payload) {
  // An empty chunk is sent before anything is computed, and a damaged chunk proves nothing.
  if (payload.size_bytes == 0 || Crc32c(payload.data, payload.size_bytes) != header.crc32c()) {
    return;
  }
  const ps::PushKey& key = header.key();
  absl::MutexLock lock(&mutex_);
  const auto found = computed_.find(key.worker_id());
  if (found == computed_.end()) return;  // the gradients of this clone are not known
  Computed& computed = found->second;
  const std::string serialized = key.SerializeAsString();
  positions_.try_emplace(serialized, computed.position);
  if (computed.judged_key != serialized) {
    computed.judged_key = serialized;
    JudgeKey(key, computed);
  }
  const int shard = static_cast<int>(header.shard()), chunk = static_cast<int>(header.chunk());
  const absl::Span<const float> expected = Part(computed.gradient, sharding_.chunk(shard, chunk));
  ++compared_;
  const bool may_be_rounded =
      header.encoding() == ps::FLOAT32 && exact_.Overlap(sharding_.chunk(shard, chunk));
  if (!may_be_rounded && !IsSentAs(payload, header.encoding(), expected)) {
    Problem(absl::StrCat(Describe(key), ": chunk ", chunk, " of shard ", shard,
                         " is not the gradient of these weights"));
  }
}

void ContributionAudit::NoteOutcome(const ps::PushKey& key, ps::PushReply::Outcome outcome) {
  if (outcome != ps::PushReply::ACCEPTED) return;
  absl::MutexLock lock(&mutex_);
  accepted_[{key.step(), key.epoch()}].insert(key.replica());
  const auto position = positions_.find(key.SerializeAsString());
  if (position != positions_.end()) ++accepted_positions_[{key.replica(), position->second}];
}

void ContributionAudit::NoteCompute(uint32_t worker, uint64_t position, uint32_t replica,
                                    absl::Span<const float> weights,
                                    absl::Span<const float> expected) {
  absl::MutexLock lock(&mutex_);
  Computed& computed = computed_[worker];
  computed.position = position;
  computed.replica = replica;
  computed.weights.assign(weights.begin(), weights.end());
  computed.gradient.assign(expected.begin(), expected.end());
  computed.judged_key.clear();
}

void ContributionAudit::NoteGradient(uint32_t worker, absl::Span<const float> gradient) {
  absl::MutexLock lock(&mutex_);
  computed_[worker].gradient.assign(gradient.begin(), gradient.end());
}

void ContributionAudit::NoteComputed(uint32_t worker, absl::Span<const float> weights) {
  absl::MutexLock lock(&mutex_);
  const Computed& computed = computed_[worker];
  if (SameBits(computed.weights, weights)) return;
  Problem(absl::StrCat("clone ", worker, ", position ", computed.position, ", replica ",
                       computed.replica, ": the weights changed while the gradient was computed"));
}

std::vector<std::string> ContributionAudit::problems() const {
  absl::MutexLock lock(&mutex_);
  return problems_;
}

uint64_t ContributionAudit::compared_chunks() const {
  absl::MutexLock lock(&mutex_);
  return compared_;
}

std::set<uint32_t> ContributionAudit::AcceptedReplicas(uint64_t step) const {
  absl::MutexLock lock(&mutex_);
  std::set<uint32_t> replicas;
  for (auto it = accepted_.lower_bound({step, 0}); it != accepted_.end() && it->first.first == step;
       ++it) {
    replicas = it->second;
  }
  return replicas;
}

std::map<std::pair<uint32_t, uint64_t>, int> ContributionAudit::AcceptedPositions() const {
  absl::MutexLock lock(&mutex_);
  return accepted_positions_;
}

}  // namespace pushpull
