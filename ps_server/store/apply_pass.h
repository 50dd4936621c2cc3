// One step of the optimizer over one shard, in one fused pass: memory is read once and written
// once.
//
// For a trainable variable that is not frozen, elementwise, float32 (fma: one rounding):
//   g = r_0 * g_0; g = fma(r_k, g_k, g) for the other contributions in the order given (slot
//   order), with
//       r_k = float(samples_k / sum of samples) (the division in double)
//   g = fma(l2_weight, w, g); g = g * learning_rate_multiplier; g = g * clip
//   then the optimizer's rule and the EMA (optimizer.h).
// clip = float(clip_norm / norm) if norm > clip_norm, else 1; norm is the square root of the
// variable's entry of variable_squared_norms (per tensor), or of the sum of all entries in order
// (global). Moving statistics: v = fma(float(1 - moving_average_decay), s - v, v) with s averaged
// as g is, and the same value as EMA. Frozen variables are copied. Contributions with samples = 0
// are left out; when none is left, everything is copied. Padding becomes zero. The result is the
// same, bit for bit, for any number of threads and tasks.
//
// Thread-safe; the pool's ParallelFor serialises. Layout and pool must outlive the pass.
#ifndef PUSHPULL_PS_SERVER_STORE_APPLY_PASS_H_
#define PUSHPULL_PS_SERVER_STORE_APPLY_PASS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/payload.h"
#include "common/sharding.h"
#include "common/thread_pool.h"
#include "common/variable_layout.h"
#include "ps_server/store/optimizer.h"
#include "ps_server/store/state_vectors.h"

namespace pushpull {

// One slot's gradient of this shard. chunks[i] holds the elements of Sharding::chunk(shard, i); the
// bytes need not be aligned and must be finite float32 or, where there are half as many, bfloat16
// (checked on arrival, not here).
struct GradientContribution {
  uint32_t slot = 0;
  uint64_t samples = 0;
  std::vector<Payload> chunks;
};

class ApplyPass {
 public:
  ApplyPass(const VariableLayout* layout, const Sharding& sharding, int shard,
            const OptimizerSpec& optimizer, ThreadPool* pool);

  // As the other Run, but makes only these chunks of the shard (in rising order), and only theirs
  // of each contribution have to be there.
  absl::Status Run(uint64_t step, absl::Span<const GradientContribution> contributions,
                   absl::Span<const double> variable_squared_norms, absl::Span<const int> chunks,
                   const ConstStateVectors& from, const StateVectors& to) const;

  // Makes version `step` (>= 1) from version step - 1: reads `from`, writes `to` (but for the slots
  // of moving statistics, which are zero in all versions). variable_squared_norms: of the whole
  // variables over all shards, one per variable; needed if the optimizer clips, else ignored.
  // INVALID_ARGUMENT: chunks or norms that do not fit the shard; nothing was written.
  absl::Status Run(uint64_t step, absl::Span<const GradientContribution> contributions,
                   absl::Span<const double> variable_squared_norms, const ConstStateVectors& from,
                   const StateVectors& to) const;

  // Squared L2 norm of this shard's part of g before clipping, per variable of the layout; 0 for
  // variables elsewhere, frozen ones and moving statistics. Sums of the parts over the shards do
  // not depend on the sharding while a norm is below about 1,000 x clip_norm: squares are summed in
  // double over each page (1,024 elements of the flat vector) in a fixed order, and page sums are
  // rounded to a multiple of 2^-32 * clip_norm^2 (rounded down to a power of two), so that adding
  // them is exact. Needs clip_norm > 0.
  absl::StatusOr<std::vector<double>> MeasureNorms(
      absl::Span<const GradientContribution> contributions, const ConstStateVectors& from) const;

  // Bytes that Run reads and writes with so many contributions, for benchmarks.
  int64_t BytesMoved(int num_contributions) const;

 private:
  // A run of elements of one variable that crosses no page boundary of the flat vector, so that the
  // runs are the same whatever the sharding.
  struct Segment {
    int64_t begin;  // in the shard; a multiple of 16
    int32_t count;  // padding not counted
    int32_t variable;
    int64_t padded() const { return (int64_t{count} + 15) / 16 * 16; }
  };
  struct Sources;

  absl::StatusOr<Sources> CheckContributions(absl::Span<const GradientContribution> contributions,
                                             absl::Span<const int> chunks) const;
  // Calls `work` for every block of these chunks, by the pool.
  template <typename Work>
  void ForEachBlock(absl::Span<const int> chunks, const Work& work) const;

  const VariableLayout* layout_;
  Sharding sharding_;
  int shard_;
  OptimizerSpec optimizer_;
  ThreadPool* pool_;
  std::vector<Segment> segments_;
  std::vector<int64_t> blocks_;  // first segment of each block of work, and the end
  std::vector<int> all_chunks_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_STORE_APPLY_PASS_H_
