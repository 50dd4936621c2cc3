#include "tests/ps_server/simulator/toy_store.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_format.h"

namespace pushpull::sim {
namespace {

std::vector<float> ToFloats(const Payload& payload) {
  std::vector<float> floats(payload.size_bytes / sizeof(float));
  std::memcpy(floats.data(), payload.data, payload.size_bytes);
  return floats;
}

double SquaredNormOf(const shard_action::StoreApply& order) {
  if (order.variable_squared_norms.empty()) return -1;
  double sum = 0;
  for (const double norm : order.variable_squared_norms) sum += norm;
  return sum;
}

std::vector<StagedChunk> ChunkOf(const std::vector<StagedContribution>& contributions, int chunk) {
  std::vector<StagedChunk> chunks;
  for (const StagedContribution& c : contributions) {
    chunks.push_back({c.replica, c.samples, c.chunks[chunk]});
  }
  return chunks;
}

}  // namespace

std::vector<ToyContribution> ToContributions(const std::vector<StagedContribution>& staged) {
  std::vector<ToyContribution> contributions;
  for (const StagedContribution& replica : staged) {
    ToyContribution contribution{replica.samples, {}};
    for (const EncodedChunk& chunk : replica.chunks) {
      const std::vector<float> floats = ToFloats(chunk.payload);
      contribution.gradient.insert(contribution.gradient.end(), floats.begin(), floats.end());
    }
    contributions.push_back(std::move(contribution));
  }
  return contributions;
}

std::vector<VersionId> ToyStore::held() const {
  std::vector<VersionId> versions;
  for (const Buffer& buffer : buffers_) {
    if (buffer.id.has_value()) versions.push_back(*buffer.id);
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

std::optional<VersionId> ToyStore::newest() const {
  const std::vector<VersionId> versions = held();
  if (versions.empty()) return std::nullopt;
  return versions.back();
}

const ToyState* ToyStore::Find(uint64_t version) const {
  for (const Buffer& buffer : buffers_) {
    if (buffer.id.has_value() && buffer.id->version == version) return &buffer.state;
  }
  return nullptr;
}

ToyStore::Buffer* ToyStore::Newest() {
  Buffer* newest = nullptr;
  for (Buffer& buffer : buffers_) {
    if (!buffer.id.has_value()) continue;
    if (newest == nullptr || *buffer.id > *newest->id) newest = &buffer;
  }
  return newest;
}

size_t ToyStore::FirstOf(int chunk) const {
  size_t first = 0;
  for (int i = 0; i < chunk; ++i) first += chunks()[i];
  return first;
}

void ToyStore::BeginVersion(uint64_t step) {
  if (writing_ >= 0) return;
  const Buffer* newest = Newest();
  if (newest == nullptr || newest->id->version + 1 != step) {
    world_->Fail(absl::StrFormat(
        "the store was told to make version %d without the version before it", step));
    return;
  }
  writing_ = newest == &buffers_[0] ? 1 : 0;
  made_from_.assign(chunks().size(), {});
  Buffer& buffer = buffers_[writing_];
  buffer.id.reset();
  const std::vector<float> torn(newest->state.weights.size(),
                                std::numeric_limits<float>::quiet_NaN());
  buffer.state = {torn, torn};
}

void ToyStore::Make(int chunk, const std::vector<StagedChunk>& from, double squared_norm) {
  std::vector<ToyContribution> contributions;
  for (const StagedChunk& c : from) contributions.push_back({c.samples, ToFloats(c.chunk.payload)});
  const Buffer& newest = buffers_[1 - writing_];
  std::vector<float> average = Average(contributions);
  ToyState& to = buffers_[writing_].state;
  if (!average.empty()) {
    UpdateRange(newest.state, FirstOf(chunk), average, squared_norm, &to);
    return;
  }
  for (size_t i = FirstOf(chunk); i < FirstOf(chunk + 1); ++i) {
    to.weights[i] = newest.state.weights[i];
    to.momentum[i] = newest.state.momentum[i];
  }
}

void ToyStore::MakeAhead(const shard_action::StoreApplyAhead& order) {
  BeginVersion(order.step);
  if (writing_ < 0) return;
  Make(static_cast<int>(order.chunk), order.contributions, -1);
  made_from_[order.chunk] = order.contributions;
}

std::vector<int> ToyStore::BeginApply(const shard_action::StoreApply& order) {
  BeginVersion(order.step);
  std::vector<int> to_make;
  if (writing_ < 0) return to_make;
  const SimConfig& config = world_->config();
  for (int chunk = 0; chunk < static_cast<int>(chunks().size()); ++chunk) {
    const std::vector<StagedChunk> wanted = ChunkOf(order.contributions, chunk);
    const std::vector<StagedChunk>& made = made_from_[chunk];
    const bool same = std::equal(made.begin(), made.end(), wanted.begin(), wanted.end(),
                                 [&](const auto& a, const auto& b) {
                                   return a.replica == b.replica && a.samples == b.samples &&
                                          a.chunk.payload.data == b.chunk.payload.data;
                                 });
    if (made.empty() || (!same && config.compare_ahead)) to_make.push_back(chunk);
  }
  if (!config.commit_when_whole) buffers_[writing_].id = VersionId{order.epoch, order.step};
  return to_make;
}

void ToyStore::MakeChunk(const shard_action::StoreApply& order, int chunk) {
  Make(chunk, ChunkOf(order.contributions, chunk), SquaredNormOf(order));
}

void ToyStore::Commit(const shard_action::StoreApply& order) {
  Buffer& buffer = buffers_[writing_];
  buffer.id = VersionId{order.epoch, order.step};
  buffer.last_version = order.step;
  buffer.marks = order.marks;
  writing_ = -1;
}

std::vector<double> ToyStore::Measure(const shard_action::StoreMeasure& order) const {
  std::vector<double> norms(world_->config().shards);
  norms[shard_] = SquaredNorm(Average(ToContributions(order.contributions)));
  return norms;
}

absl::StatusOr<std::string> ToyStore::Restore(const shard_action::StoreRestore& order) {
  writing_ = -1;
  if (order.source == ps::RestoreRequest::MAPPED) {
    const auto found = std::find_if(buffers_.begin(), buffers_.end(), [&](const Buffer& buffer) {
      return buffer.id.has_value() && buffer.id->version == order.id.version;
    });
    if (found == buffers_.end()) {
      return absl::FailedPreconditionError(
          absl::StrFormat("version %d is not held", order.id.version));
    }
    for (Buffer& buffer : buffers_) {
      if (buffer.id.has_value() && buffer.id->version > order.id.version &&
          world_->config().restore_drops_newer) {
        buffer.id.reset();
      }
    }
    return found->marks;
  }
  for (Buffer& buffer : buffers_) buffer = Buffer{};
  Buffer& buffer = buffers_[0];
  if (order.source == ps::RestoreRequest::CHECKPOINT) {
    const auto checkpoint = world_->disk().checkpoints.find(order.id.version);
    if (checkpoint == world_->disk().checkpoints.end() ||
        checkpoint->second.epoch != order.id.epoch) {
      return absl::FailedPreconditionError(absl::StrFormat("no checkpoint of step %d of epoch %d",
                                                           order.id.version, order.id.epoch));
    }
    buffer.state = checkpoint->second.shards[shard_].state;
    if (world_->config().checkpoints_keep_marks) {
      buffer.marks = checkpoint->second.shards[shard_].marks;
    }
  } else {
    buffer.state = InitialState(world_->config(), shard_);
  }
  buffer.id = order.id;
  buffer.last_version = order.id.version;
  return buffer.marks;
}

Disk::ShardFile ToyStore::Capture(uint64_t step, const std::string& marks) const {
  for (const Buffer& buffer : buffers_) {
    if (buffer.last_version == step) return {buffer.state, marks};
  }
  return {};
}

void ToyStore::Crash(bool mapped_state_survives) {
  writing_ = -1;
  if (!mapped_state_survives) buffers_ = File{};
}

void ToyStore::MoveAway() { std::swap(buffers_, elsewhere_); }

void ToyStore::RemoveFile() { buffers_ = File{}; }

}  // namespace pushpull::sim
