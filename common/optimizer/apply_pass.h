// clang-format off
// Runs one step of the optimizer over one shard in a single pass, which reads and writes each
// element of memory once.
//
// A trainable variable that is not frozen is updated elementwise in float32 (an fma rounds once):
//
//   r_k = float(samples_k / sum of samples)     the division is in double
//   g   = r_0 * g_0
//   g   = fma(r_k, g_k, g)                      for k = 1, 2, ... in the order given (by replica)
//   g   = fma(l2_weight, w, g)
//   g   = g * gradient_multiplier
//   g   = g * clip
//
// and then by the optimizer's rule (rules/), whose learning rate the variable's
// learning_rate_multiplier scales, and by the EMA (optimizer.h). The clip factor is
//
//   clip = float(clip_norm / norm) if norm > clip_norm, else 1
//   norm = sqrt(the variable's entry of variable_squared_norms)          clipping per tensor
//   norm = sqrt(the sum of all entries of variable_squared_norms)        global clipping
//
// A moving statistic, with s averaged as g is, becomes
//
//   v = fma(float(1 - moving_average_decay), s - v, v)                   the same value is its EMA
//   v = s                                                                with moving_average_decay = 0
//
// Frozen variables are copied, but the EMA of a trainable one goes on, because the variable may have
// been updated before a restart froze it. Contributions with samples = 0 are left out; if none is
// left, everything is copied. Padding becomes zero. The result is bit-identical for any number of
// threads and tasks.
//
// Thread-safe; concurrent calls wait for each other in the pool's ParallelFor. The layout and the
// pool must outlive the pass.
// clang-format on
#ifndef PUSHPULL_COMMON_OPTIMIZER_APPLY_PASS_H_
#define PUSHPULL_COMMON_OPTIMIZER_APPLY_PASS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/base/thread_pool.h"
#include "common/model/sharding.h"
#include "common/model/variable_layout.h"
#include "common/optimizer/optimizer.h"
#include "common/optimizer/state_vectors.h"
#include "common/wire/encoded_chunk.h"

namespace pushpull {

// One replica's gradient of this shard. chunks[i] holds the elements of Sharding::chunk(shard, i)
// in any encoding. All values must be finite; that is checked on arrival, not here.
struct GradientContribution {
  uint32_t replica = 0;
  uint64_t samples = 0;
  std::vector<EncodedChunk> chunks;
};

// Says which update a pass makes.
struct UpdateNumber {
  // The update that makes version `step` (>= 1) of the server's variables.
  UpdateNumber(uint64_t step) : step(step), updates_before(step - 1) {}  // NOLINT: is a number
  UpdateNumber(uint64_t step, uint64_t updates_before)
      : step(step), updates_before(updates_before) {}

  // The number of the update, from 1, since the slots got their initial values. The rule and the
  // EMA use it.
  uint64_t step;
  uint64_t updates_before;  // argument of the learning rate's schedule
};

class ApplyPass {
 public:
  ApplyPass(const VariableLayout* layout, const Sharding& sharding, int shard,
            const OptimizerSpec& optimizer, ThreadPool* pool);

  // Does the same as the other Run, but makes only these chunks of the shard (in ascending order).
  // Only these chunks of each contribution must be present.
  absl::Status Run(UpdateNumber number, absl::Span<const GradientContribution> contributions,
                   absl::Span<const double> variable_squared_norms, absl::Span<const int> chunks,
                   const ConstStateVectors& from, const StateVectors& to) const;

  // Makes a version from the one before it: reads `from` and writes `to`, except the slots of
  // moving statistics, which are zero in all versions. The two may be the same vectors.
  // variable_squared_norms is what MeasureNorms returns, summed over all shards; it is ignored
  // unless norms are measured. Blocks until the version is made.
  //   INVALID_ARGUMENT: chunks or norms do not fit the shard; nothing was written
  absl::Status Run(UpdateNumber number, absl::Span<const GradientContribution> contributions,
                   absl::Span<const double> variable_squared_norms, const ConstStateVectors& from,
                   const StateVectors& to) const;

  // Returns the squared L2 norms that the update needs, over this shard's elements only; 0 for
  // frozen variables, moving statistics and variables in other shards. When clipping: of g before
  // clipping, per variable of the layout. For a rule that needs norms: of the weights of every
  // variable, then of the update of every variable. Needs OptimizerSpec::measures_norms().
  //   INVALID_ARGUMENT: chunks do not fit the shard
  //
  // The sum of the shards' norms does not depend on the sharding, because adding up the norms of
  // pages (1,024 elements of the flat vector) is exact. Within a page, squares are summed in double
  // in a fixed order. When clipping, each page's sum is rounded to a multiple of
  // 2^-32 * clip_norm^2 (clip_norm^2 rounded down to a power of two), and adding is exact while the
  // norm is below about 1,000 x clip_norm. For a rule, each page's sum is rounded to float, and
  // adding is exact while the variable's squared norm is below 2^29 x that of each page.
  absl::StatusOr<std::vector<double>> MeasureNorms(
      UpdateNumber number, absl::Span<const GradientContribution> contributions,
      const ConstStateVectors& from) const;

  // Returns the bytes that Run reads and writes with this many float32 contributions, for
  // benchmarks.
  int64_t BytesMoved(int num_contributions) const;

 private:
  // A run of elements of one variable within one page of the flat vector. Cutting at pages makes
  // the runs the same for every sharding.
  struct Segment {
    int64_t begin;  // offset in the shard; a multiple of 16
    int32_t count;  // without padding
    int32_t variable;
    int64_t padded() const { return (int64_t{count} + 15) / 16 * 16; }
  };
  struct Sources;

  absl::StatusOr<Sources> CheckContributions(absl::Span<const GradientContribution> contributions,
                                             absl::Span<const int> chunks) const;
  // Returns how many norms MeasureNorms returns.
  int64_t NumNorms() const;
  // Calls `work` for every block of these chunks, on the pool's threads.
  template <typename Work>
  void ForEachBlock(absl::Span<const int> chunks, const Work& work) const;

  const VariableLayout* layout_;
  Sharding sharding_;
  int shard_;
  OptimizerSpec optimizer_;
  ThreadPool* pool_;
  std::vector<Segment> segments_;
  std::vector<int64_t> blocks_;  // index of each block's first segment; the last entry is the end
  std::vector<int> all_chunks_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_OPTIMIZER_APPLY_PASS_H_
