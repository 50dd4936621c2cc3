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
    CHECK(options.spread_over == 0 || options.spread_over >= options.num_examples)
        << options.spread_over;
  } else {
    CHECK_EQ(options.spread_over, 0);
  }
}

int64_t Sampler::ReplicaBatchSize(int replica) const {
  if (options_.mode != SamplerOptions::Mode::kSync) return options_.batch_size;
  return DivideEqually(options_.batch_size, options_.num_replicas)[replica];
}

void Sampler::GetBatch(int64_t step, int replica, std::vector<Sample>* samples) const {
  CHECK_GE(step, 0);
  CHECK_GE(replica, 0);
  CHECK_LT(replica, options_.num_replicas);
  const int64_t batch_size = options_.batch_size;
  switch (options_.mode) {
    case SamplerOptions::Mode::kSync:
      return GetPart(step, PartOf(DivideEqually(batch_size, options_.num_replicas), replica),
                     samples);
    case SamplerOptions::Mode::kAsync:
      return Get((step * options_.num_replicas + replica) * batch_size, batch_size, samples);
    case SamplerOptions::Mode::kEvaluate: {
      const int64_t begin = std::min(step * batch_size, options_.num_examples);
      Get(begin, std::min(batch_size, options_.num_examples - begin), samples);
      if (options_.spread_over == 0) return;
      for (Sample& sample : *samples) {
        sample.index = sample.index * options_.spread_over / options_.num_examples;
      }
    }
  }
}

void Sampler::GetPart(int64_t step, const BatchPart& part, std::vector<Sample>* samples) const {
  CHECK(options_.mode == SamplerOptions::Mode::kSync);
  CHECK_GE(step, 0);
  CHECK(part.first >= 0 && part.samples >= 1 && part.samples <= options_.batch_size &&
        part.first <= options_.batch_size - part.samples)
      << part.first << ", " << part.samples;
  Get(step * options_.batch_size + part.first, part.samples, samples);
}

void Sampler::Get(int64_t begin, int64_t count, std::vector<Sample>* samples) const {
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
