// Tested by tests/worker/client/grpc/pushpull_client_test.cc.
//
// The C function that draws the samples of a batch. It needs no clone.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "worker/client/pushpull_client.h"
#include "worker/sampling/sampler.h"

namespace pushpull {
namespace {

BatchPart SampledPart(const PushpullSampling& sampling) {
  return {static_cast<int64_t>(sampling.first_sample), static_cast<int64_t>(sampling.samples)};
}

// Returns the options of a sampler, or nullopt if a number is out of its range.
std::optional<SamplerOptions> Convert(const PushpullSampling& from, uint64_t position,
                                      uint32_t replica) {
  constexpr double kMaxPositions = 9e18;  // Sampler counts in int64_t
  if (from.num_examples < 1 || from.num_examples > int64_t{1} << 62) return std::nullopt;
  if (from.num_replicas < 1 || from.batch_size < 1) return std::nullopt;
  if (from.sync != 0 && from.samples > 0) {
    const uint64_t size = static_cast<uint64_t>(from.batch_size);
    if (from.samples > size || from.first_sample > size - from.samples) return std::nullopt;
  } else if (replica >= static_cast<uint32_t>(from.num_replicas) ||
             (from.sync != 0 && from.batch_size < from.num_replicas)) {
    return std::nullopt;
  }
  const double batches =
      (static_cast<double>(position) + 1.0) * (from.sync != 0 ? 1.0 : from.num_replicas);
  if (batches * static_cast<double>(from.batch_size) > kMaxPositions) return std::nullopt;
  SamplerOptions to;
  to.mode = from.sync != 0 ? SamplerOptions::Mode::kSync : SamplerOptions::Mode::kAsync;
  to.seed = from.seed;
  to.num_examples = from.num_examples;
  to.batch_size = from.batch_size;
  to.num_replicas = from.sync != 0 && from.samples > 0 ? 1 : from.num_replicas;
  to.shuffle = from.shuffle != 0;
  return to;
}

}  // namespace
}  // namespace pushpull

int64_t pushpull_sample_batch(const PushpullSampling* sampling, uint64_t position, uint32_t replica,
                              int64_t* indices, int64_t capacity) {
  if (sampling == nullptr || capacity < 0 || (indices == nullptr && capacity > 0)) return -1;
  const std::optional<pushpull::SamplerOptions> options =
      pushpull::Convert(*sampling, position, replica);
  if (!options.has_value()) return -1;
  std::vector<pushpull::Sample> samples;
  const pushpull::Sampler sampler(*options);
  const int64_t step = static_cast<int64_t>(position);
  if (options->mode == pushpull::SamplerOptions::Mode::kSync && sampling->samples > 0) {
    sampler.GetPart(step, pushpull::SampledPart(*sampling), &samples);
  } else {
    sampler.GetBatch(step, static_cast<int>(replica), &samples);
  }
  const int64_t size = static_cast<int64_t>(samples.size());
  for (int64_t i = 0; i < std::min(size, capacity); ++i) indices[i] = samples[i].index;
  return size;
}
