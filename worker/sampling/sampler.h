// Chooses the examples of each batch. A batch depends only on the options, the step and the
// replica or its part, so there is no state to save or restore. Any worker can compute the batch of
// any replica, a resumed run sees the same data, and the global batch of a synchronous step does
// not depend on how it is divided. Uses O(1) memory.
//
// Positions number the samples of a whole run from 0. Position p belongs to epoch p / size and is
// example Permutation(p mod size) of that epoch, or example p mod size without shuffling. An epoch
// is a pass over the data set here. A batch may extend over the end of an epoch.
//
// With batch size B and N replicas the modes are:
//
// clang-format off
//   kSync      Step t (from 0) has the positions [t*B, (t+1)*B). The replicas get parts of them in
//              turn: those that the server names (GetPart), or equal ones, by DivideEqually
//              (B = 15, N = 2: 7 and 8).
//   kAsync     Each replica counts its steps from 0. Its batch has the positions
//              (step*N + replica)*B + [0, B).
//   kEvaluate  There is one replica and one pass in order. The last batch may be smaller; later
//              batches are empty. With spread_over, example i is example
//              i * spread_over / num_examples of the source.
// clang-format on
//
// Thread rule: immutable value.
#ifndef PUSHPULL_WORKER_SAMPLING_SAMPLER_H_
#define PUSHPULL_WORKER_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "common/wire/batch_division.h"

namespace pushpull {

struct SamplerOptions {
  enum class Mode { kSync, kAsync, kEvaluate };
  Mode mode = Mode::kSync;
  uint64_t seed = 0;
  int64_t num_examples = 0;  // kEvaluate may use fewer than the source has
  // kEvaluate: the size of the source, over which the examples are spread evenly; 0: take the first
  // ones.
  int64_t spread_over = 0;
  // B: of all replicas together in kSync, of one replica in kAsync.
  int64_t batch_size = 0;
  int num_replicas = 1;  // N, the number of replicas
  bool shuffle = true;   // use a new order in each epoch; must be false in kEvaluate
};

struct Sample {
  int64_t position = 0;  // in the run; random augmentation depends on it
  int64_t index = 0;     // in the source
};

class Sampler {
 public:
  // CHECKs that all numbers are at least 1, that the batch has a sample for each replica (kSync),
  // that there is one replica without shuffling (kEvaluate), and that spread_over is 0, or at least
  // num_examples (kEvaluate).
  explicit Sampler(const SamplerOptions& options);

  const SamplerOptions& options() const { return options_; }

  // Returns the number of samples in each batch of the replica. In kEvaluate batches may be
  // smaller.
  int64_t ReplicaBatchSize(int replica) const;
  int64_t MaxReplicaBatchSize() const { return ReplicaBatchSize(options_.num_replicas - 1); }

  // Replaces *samples with the samples of the batch, in order of position. CHECKs that step >= 0
  // and 0 <= replica < num_replicas.
  void GetBatch(int64_t step, int replica, std::vector<Sample>* samples) const;
  // kSync: the same for a part of the step's global batch. CHECKs that step >= 0 and that the part
  // lies in the batch.
  void GetPart(int64_t step, const BatchPart& part, std::vector<Sample>* samples) const;

 private:
  void Get(int64_t begin, int64_t count, std::vector<Sample>* samples) const;

  SamplerOptions options_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_SAMPLING_SAMPLER_H_
