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
  if (options.num_slots < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("number of slots is ", options.num_slots, ", expected at least 1"));
  }
  if (options.mode == Mode::kSync && options.batch_size < options.num_slots) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch_size ", options.batch_size, " is smaller than the ", options.num_slots,
        " clones it is divided into; every clone needs at least one image: raise batch_size or "
        "start fewer clones"));
  }
  if (options.mode == Mode::kEvaluate && (options.shuffle || options.num_slots != 1)) {
    return absl::InvalidArgumentError("evaluation takes the examples in order, in one slot");
  }
  return Sampler(options);
}

int64_t Sampler::SlotBatchSize(int slot) const {
  if (options_.mode != SamplerOptions::Mode::kSync) return options_.batch_size;
  const int64_t base = options_.batch_size / options_.num_slots;
  const int64_t remainder = options_.batch_size % options_.num_slots;
  return base + (slot >= options_.num_slots - remainder ? 1 : 0);
}

void Sampler::GetBatch(int64_t step, int slot, std::vector<Sample>* samples) const {
  CHECK_GE(step, 0);
  CHECK_GE(slot, 0);
  CHECK_LT(slot, options_.num_slots);
  int64_t begin = step * options_.batch_size;
  int64_t count = SlotBatchSize(slot);
  switch (options_.mode) {
    case SamplerOptions::Mode::kSync: {
      // Each replica before this one has the smaller size, and those from first_larger on have one
      // sample more.
      const int64_t first_larger = options_.num_slots - options_.batch_size % options_.num_slots;
      begin += slot * (options_.batch_size / options_.num_slots);
      if (slot > first_larger) begin += slot - first_larger;
      break;
    }
    case SamplerOptions::Mode::kAsync:
      begin = (step * options_.num_slots + slot) * options_.batch_size;
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
