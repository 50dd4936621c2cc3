#include "common/optimizer/apply_pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "common/optimizer/apply_kernels.h"

namespace pushpull {
namespace {

static_assert(kMaxRunElements == Sharding::kPageElements);

// The number of elements in one unit of parallel work: 64 KiB of each vector.
constexpr int64_t kBlockElements = 16 * Sharding::kPageElements;
// Every chunk except the last consists of whole blocks.
static_assert(Sharding::kFirstChunkElements % kBlockElements == 0);

// Returns the clip factor of every variable.
std::vector<float> ClipFactors(const OptimizerSpec& optimizer,
                               absl::Span<const double> squared_norms) {
  const auto factor = [&](double squared_norm) {
    const double norm = std::sqrt(squared_norm);
    return norm > optimizer.clip_norm ? static_cast<float>(optimizer.clip_norm / norm) : 1.0f;
  };
  std::vector<float> factors(squared_norms.size(), 1.0f);
  if (optimizer.clipping == ClippingKind::kPerTensor) {
    std::transform(squared_norms.begin(), squared_norms.end(), factors.begin(), factor);
  } else if (optimizer.clipping == ClippingKind::kGlobal) {
    double sum = 0.0;
    for (const double squared_norm : squared_norms) sum += squared_norm;
    std::fill(factors.begin(), factors.end(), factor(sum));
  }
  return factors;
}

// Returns a variable's entries among the norms measured for a rule.
SquaredNorms NormsOf(int variable, absl::Span<const double> squared_norms) {
  return {squared_norms[variable], squared_norms[squared_norms.size() / 2 + variable]};
}

// Copies elements [begin, begin + count) of every vector.
void CopyState(const OptimizerSpec& optimizer, int64_t begin, int64_t count,
               const ConstStateVectors& from, const StateVectors& to) {
  if (from.weights == to.weights) return;
  const size_t bytes = count * sizeof(float);
  std::memcpy(to.weights + begin, from.weights + begin, bytes);
  for (int slot = 0; slot < optimizer.num_slots(); ++slot) {
    std::memcpy(to.slots[slot] + begin, from.slots[slot] + begin, bytes);
  }
  if (optimizer.has_ema) std::memcpy(to.ema + begin, from.ema + begin, bytes);
}

}  // namespace

// The contributions with samples > 0, after their chunks were checked.
struct ApplyPass::Sources {
  std::vector<const GradientContribution*> contributions;
  std::vector<float> ratios;
  std::vector<int64_t> chunk_begins;  // offsets in the shard
  std::vector<int64_t> chunk_elements;

  // Returns the elements of all contributions from `begin` (an offset in the shard) on. They are
  // contiguous up to the end of the segment, because a segment lies in one chunk.
  absl::InlinedVector<WeightedSource, 8> At(int64_t begin) const {
    const int chunk = ChunkOf(begin);
    const int64_t offset = begin - chunk_begins[chunk];
    absl::InlinedVector<WeightedSource, 8> sources(contributions.size());
    for (size_t k = 0; k < contributions.size(); ++k) {
      const EncodedChunk& encoded = contributions[k]->chunks[chunk];
      sources[k] = {FindGradientCodec(encoded.encoding), encoded.payload.data,
                    chunk_elements[chunk], offset, ratios[k]};
    }
    return sources;
  }
};

ApplyPass::ApplyPass(const VariableLayout* layout, const Sharding& sharding, int shard,
                     const OptimizerSpec& optimizer, ThreadPool* pool)
    : layout_(layout), sharding_(sharding), shard_(shard), optimizer_(optimizer), pool_(pool) {
  const ElementRange range = sharding_.shard(shard_);
  for (int64_t at = range.begin; at < range.end;) {
    const int64_t variable = layout_->VariableAt(at);
    const int64_t end = layout_->offset(variable) + layout_->num_elements(variable);
    const int64_t padded_end = variable + 1 < layout_->num_variables()
                                   ? layout_->offset(variable + 1)
                                   : layout_->total_elements();
    const int64_t page_end =
        at / Sharding::kPageElements * Sharding::kPageElements + Sharding::kPageElements;
    const int64_t next = std::min(page_end, padded_end);
    segments_.push_back({at - range.begin, static_cast<int32_t>(std::min(next, end) - at),
                         static_cast<int32_t>(variable)});
    const int64_t block = (at - range.begin) / kBlockElements;
    if (block == static_cast<int64_t>(blocks_.size())) blocks_.push_back(segments_.size() - 1);
    at = next;
  }
  blocks_.push_back(segments_.size());
  all_chunks_.resize(sharding_.num_chunks(shard_));
  std::iota(all_chunks_.begin(), all_chunks_.end(), 0);
}

template <typename Work>
void ApplyPass::ForEachBlock(absl::Span<const int> chunks, const Work& work) const {
  std::vector<int64_t> blocks;
  for (const int chunk : chunks) {
    const ElementRange range = ChunkRange(sharding_.shard(shard_).size(), chunk);
    for (int64_t at = range.begin; at < range.end; at += kBlockElements) {
      blocks.push_back(at / kBlockElements);
    }
  }
  pool_->ParallelFor(static_cast<int64_t>(blocks.size()), [&](int64_t i) { work(blocks[i]); });
}

absl::StatusOr<ApplyPass::Sources> ApplyPass::CheckContributions(
    absl::Span<const GradientContribution> contributions, absl::Span<const int> chunks) const {
  Sources sources;
  const int num_chunks = sharding_.num_chunks(shard_);
  for (int chunk = 0; chunk < num_chunks; ++chunk) {
    const ElementRange range = sharding_.chunk(shard_, chunk);
    sources.chunk_begins.push_back(range.begin - sharding_.shard(shard_).begin);
    sources.chunk_elements.push_back(range.size());
  }
  double total = 0.0;
  for (const GradientContribution& contribution : contributions) {
    if (contribution.samples == 0) continue;
    if (static_cast<int>(contribution.chunks.size()) != num_chunks) {
      return absl::InvalidArgumentError(
          absl::StrCat("contribution of replica ", contribution.replica, " has ",
                       contribution.chunks.size(), " chunks, expected ", num_chunks));
    }
    for (const int chunk : chunks) {
      const EncodedChunk& encoded = contribution.chunks[chunk];
      const GradientCodec* const codec = FindGradientCodec(encoded.encoding);
      const int64_t expected =
          codec == nullptr ? -1 : codec->EncodedBytes(sources.chunk_elements[chunk]);
      if (static_cast<int64_t>(encoded.payload.size_bytes) != expected) {
        return absl::InvalidArgumentError(
            absl::StrCat("chunk ", chunk, " of replica ", contribution.replica, " has ",
                         encoded.payload.size_bytes, " bytes in encoding ", encoded.encoding,
                         ", expected ", expected));
      }
    }
    sources.contributions.push_back(&contribution);
    total += static_cast<double>(contribution.samples);
  }
  for (const GradientContribution* contribution : sources.contributions) {
    sources.ratios.push_back(
        static_cast<float>(static_cast<double>(contribution->samples) / total));
  }
  return sources;
}

absl::Status ApplyPass::Run(UpdateNumber number,
                            absl::Span<const GradientContribution> contributions,
                            absl::Span<const double> variable_squared_norms,
                            const ConstStateVectors& from, const StateVectors& to) const {
  return Run(number, contributions, variable_squared_norms, all_chunks_, from, to);
}

absl::Status ApplyPass::Run(UpdateNumber number,
                            absl::Span<const GradientContribution> contributions,
                            absl::Span<const double> variable_squared_norms,
                            absl::Span<const int> chunks, const ConstStateVectors& from,
                            const StateVectors& to) const {
  CHECK_GE(number.step, 1u);
  PP_ASSIGN_OR_RETURN(const Sources sources, CheckContributions(contributions, chunks));
  const int64_t elements = sharding_.shard(shard_).size();
  if (sources.contributions.empty()) {
    ForEachBlock(chunks, [&](int64_t block) {
      const int64_t begin = block * kBlockElements;
      CopyState(optimizer_, begin, std::min(kBlockElements, elements - begin), from, to);
    });
    return absl::OkStatus();
  }
  const bool clips = optimizer_.clipping != ClippingKind::kNone;
  const bool adapts = optimizer_.rule->needs_norms();
  if (optimizer_.measures_norms() &&
      static_cast<int64_t>(variable_squared_norms.size()) != NumNorms()) {
    return absl::InvalidArgumentError(absl::StrCat("got ", variable_squared_norms.size(),
                                                   " squared norms, expected ", NumNorms()));
  }
  const std::unique_ptr<const StepUpdate> update =
      optimizer_.rule->AtStep(number.step, optimizer_.learning_rate.At(number.updates_before));
  const std::vector<float> clip =
      ClipFactors(optimizer_, clips ? variable_squared_norms : absl::Span<const double>());
  const float one_minus_ema_decay = static_cast<float>(1 - optimizer_.EmaDecayAt(number.step));

  ForEachBlock(chunks, [&](int64_t block) {
    alignas(64) float average[kMaxRunElements];
    for (int64_t s = blocks_[block]; s < blocks_[block + 1]; ++s) {
      const Segment& segment = segments_[s];
      const VariableSpec& variable = layout_->variables()[segment.variable];
      const int64_t at = segment.begin;
      if (variable.frozen) {
        CopyState(optimizer_, at, segment.padded(), from, to);
        if (optimizer_.has_ema && variable.kind == VariableKind::kTrainable) {
          MovingAverageRun(one_minus_ema_decay, at, segment.count, from, to);
        }
        continue;
      }
      AverageRun(sources.At(at), segment.count, average);
      if (variable.kind == VariableKind::kMovingStatistic) {
        MovingStatisticRun(average, static_cast<float>(1.0 - variable.moving_average_decay), at,
                           segment.count, from, to);
        continue;
      }
      update->Run(
          {.variable = &variable,
           .clip = clips ? clip[segment.variable] : 1.0f,
           .norms = adapts ? NormsOf(segment.variable, variable_squared_norms) : SquaredNorms(),
           .one_minus_ema_decay = one_minus_ema_decay,
           .gradient = average,
           .at = at,
           .count = segment.count,
           .from = from,
           .to = to});
    }
    StoreFence();
  });
  return absl::OkStatus();
}

int64_t ApplyPass::NumNorms() const {
  return layout_->num_variables() * (optimizer_.rule->needs_norms() ? 2 : 1);
}

absl::StatusOr<std::vector<double>> ApplyPass::MeasureNorms(
    UpdateNumber number, absl::Span<const GradientContribution> contributions,
    const ConstStateVectors& from) const {
  CHECK(optimizer_.measures_norms());
  CHECK_GE(number.step, 1u);
  PP_ASSIGN_OR_RETURN(const Sources sources, CheckContributions(contributions, all_chunks_));
  std::vector<double> norms(NumNorms(), 0.0);
  if (sources.contributions.empty()) return norms;

  const bool adapts = optimizer_.rule->needs_norms();
  const std::unique_ptr<const StepUpdate> update =
      optimizer_.rule->AtStep(number.step, optimizer_.learning_rate.At(number.updates_before));
  const double clip_squared = optimizer_.clip_norm * optimizer_.clip_norm;
  const double quantum = adapts ? 0.0 : std::ldexp(1.0, std::ilogb(clip_squared) - 32);
  std::vector<SquaredNorms> page_sums(segments_.size());
  ForEachBlock(all_chunks_, [&](int64_t block) {
    alignas(64) float average[kMaxRunElements];
    for (int64_t s = blocks_[block]; s < blocks_[block + 1]; ++s) {
      const Segment& segment = segments_[s];
      const VariableSpec& variable = layout_->variables()[segment.variable];
      if (!OptimizerSpec::Updates(variable)) continue;
      AverageRun(sources.At(segment.begin), segment.count, average);
      if (adapts) {
        const SquaredNorms sums = update->Measure({.variable = &variable,
                                                   .gradient = average,
                                                   .at = segment.begin,
                                                   .count = segment.count,
                                                   .from = from,
                                                   .to = {}});
        page_sums[s] = {static_cast<float>(sums.weights), static_cast<float>(sums.update)};
      } else {
        const double sum = SquaredNormRun(average, from.weights + segment.begin, variable.l2_weight,
                                          variable.gradient_multiplier, segment.count);
        page_sums[s].update = std::nearbyint(sum / quantum) * quantum;
      }
    }
  });
  for (size_t s = 0; s < segments_.size(); ++s) {
    const int variable = segments_[s].variable;
    if (adapts) norms[variable] += page_sums[s].weights;
    norms[NumNorms() - layout_->num_variables() + variable] += page_sums[s].update;
  }
  return norms;
}

int64_t ApplyPass::BytesMoved(int num_contributions) const {
  const int64_t state_vectors = 1 + optimizer_.num_slots() + (optimizer_.has_ema ? 1 : 0);
  int64_t elements = 0;
  for (const Segment& segment : segments_) {
    const VariableSpec& variable = layout_->variables()[segment.variable];
    const bool statistic = !variable.frozen && variable.kind == VariableKind::kMovingStatistic;
    const int64_t reads = statistic ? 1 : state_vectors;
    const int64_t writes = statistic ? 1 + (optimizer_.has_ema ? 1 : 0) : state_vectors;
    elements += segment.count * (reads + writes + (variable.frozen ? 0 : num_contributions));
  }
  return elements * static_cast<int64_t>(sizeof(float));
}

}  // namespace pushpull
