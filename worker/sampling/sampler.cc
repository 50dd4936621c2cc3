#include "worker/sampling/sampler.h"

#include <algorithm>

#include "glog/logging.h"

#include "worker/sampling/permutation.h"

namespace pushpull {

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  CHECK_GE(options.num_examples, 1);
  CHECK_GE(options.num_replicas, 1);
  CHECK_GE(options.batch_size,
           options.mode == SamplerOptions::Mode::kSync ? options.num_replicas : 1);
  if (options.mode == SamplerOptions::Mode::kEvaluate) {
    CHECK(!options.shuffle && options.num_replicas == 1);
  }
}

int64_t Sampler::ReplicaBatchSize(int replica) const {
  if (options_.mode != SamplerOptions::Mode::kSync) return options_.batch_size;
  const int64_t base = options_.batch_size / options_.num_replicas;
  const int64_t remainder = options_.batch_size % options_.num_replicas;
  return base + (replica >= options_.num_replicas - remainder ? 1 : 0);
}

void Sampler::GetBatch(int64_t step, int replica, std::vector<Sample>* samples) const {
  CHECK_GE(step, 0);
  CHECK_GE(replica, 0);
  CHECK_LT(replica, options_.num_replicas);
  int64_t begin = step * options_.batch_size;
  int64_t count = ReplicaBatchSize(replica);
  switch (options_.mode) {
    case SamplerOptions::Mode::kSync: {
      // Each replica before this one has the smaller size, and those from first_larger on have one
      // sample more.
      const int64_t first_larger =
          options_.num_replicas - options_.batch_size % options_.num_replicas;
      begin += replica * (options_.batch_size / options_.num_replicas);
      if (replica > first_larger) begin += replica - first_larger;
      break;
    }
    case SamplerOptions::Mode::kAsync:
      begin = (step * options_.num_replicas + replica) * options_.batch_size;
      break;
    case SamplerOptions::Mode::kEvaluate:
      begin = std::min(begin, options_.num_examples);
      count = std::min(count, options_.num_examples - begin);
      break;
  }
  samples->resize(count);
  int64_t done = 0;
  while (done < count) {
    const int64_t epoch = (begin + done) / options_.num_examples;
    const int64_t end = std::min(count, (epoch + 1) * options_.num_examples - begin);
    const Permutation permute(options_.seed, epoch, options_.num_examples);
    for (; done < end; ++done) {
      const int64_t position = begin + done;
      const int64_t in_epoch = position - epoch * options_.num_examples;
      (*samples)[done] = {position,
                          options_.shuffle ? static_cast<int64_t>(permute(in_epoch)) : in_epoch};
    }
  }
}

}  // namespace pushpull
