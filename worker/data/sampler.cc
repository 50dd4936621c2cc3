#include "worker/data/sampler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "worker/data/permutation.h"

namespace pushpull {

absl::StatusOr<Sampler> Sampler::Create(const SamplerOptions& options) {
  using Mode = SamplerOptions::Mode;
  if (options.num_examples < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("number of examples is ", options.num_examples, ", expected at least 1"));
  }
  if (options.batch_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_size is ", options.batch_size, ", expected at least 1"));
  }
  if (options.num_replicas < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("number of replicas is ", options.num_replicas, ", expected at least 1"));
  }
  if (options.mode == Mode::kSync && options.batch_size < options.num_replicas) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch_size ", options.batch_size, " is smaller than the ", options.num_replicas,
        " clones it is divided into; every clone needs at least one image: raise batch_size or "
        "start fewer clones"));
  }
  if (options.mode == Mode::kEvaluate && (options.shuffle || options.num_replicas != 1)) {
    return absl::InvalidArgumentError("evaluation takes the examples in order, in one replica");
  }
  return Sampler(options);
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
