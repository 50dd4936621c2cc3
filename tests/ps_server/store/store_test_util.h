// Helpers for the tests of the store: small models, aligned state, contributions at odd addresses,
// and two plain scalar implementations of the apply pass (float, the same bits; double, the same
// mathematics).
#ifndef PUSHPULL_TESTS_PS_SERVER_STORE_STORE_TEST_UTIL_H_
#define PUSHPULL_TESTS_PS_SERVER_STORE_STORE_TEST_UTIL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/model/sharding.h"
#include "common/model/variable_layout.h"
#include "ps_server/store/apply_pass.h"
#include "ps_server/store/optimizer.h"
#include "ps_server/store/state_vectors.h"
#include "tests/ps_server/store/optimizer_references.h"

namespace pushpull {

// Parses the text of a train_config.
OptimizerSpec MakeOptimizer(const std::string& train_config);
// The optimizer with the reference's numbers, a rate that changes from step to step, EMA on, and
// `rest` of train_config.
OptimizerSpec MakeOptimizer(const OptimizerReference& reference, const std::string& rest = "");
OptimizerSpec MakeMomentum();
OptimizerSpec MakeRmsProp();
OptimizerSpec MakeAdam(const std::string& rest = "");

VariableSpec MakeVariable(const std::string& name, std::vector<int64_t> shape);

// About 11,000 elements: L2, multiplier, frozen variables, moving statistics, odd sizes, a tensor
// over pages.
VariableLayout MakeLayout();
// The same and a tensor of several chunks.
VariableLayout MakeLargeLayout();

// Zeroed vectors of that many elements, 64-byte aligned. Copies share them.
class OwnedState {
 public:
  OwnedState(int64_t elements, const OptimizerSpec& optimizer);
  const StateVectors& vectors() const { return vectors_; }
  ConstStateVectors view() const { return vectors_.AsConst(); }
  int num_vectors() const { return 1 + num_slots_ + (vectors_.ema != nullptr ? 1 : 0); }
  // Weights, then slots, then EMA; 0 <= i < num_vectors().
  float* vector(int i) const;
  void AppendVector(int i, std::vector<float>* all) const;
  // All vectors one after the other.
  std::vector<float> Flatten() const;
  // The vectors from `element` on.
  ConstStateVectors From(int64_t element) const;
  void CopyFrom(const ConstStateVectors& from) const;

 private:
  int64_t elements_;
  int num_slots_;
  std::shared_ptr<float> owner_;
  StateVectors vectors_;
};

// The state that FillInitialState makes with weights drawn from the seed.
OwnedState InitialState(const VariableLayout& layout, const OptimizerSpec& optimizer,
                        uint64_t seed);

// One contributor's whole gradient.
struct FullGradient {
  uint32_t replica = 0;
  uint64_t samples = 0;
  std::vector<float> values;
};

// Random values of about `scale`, in the padding too (the server must not trust it).
FullGradient RandomGradient(const VariableLayout& layout, uint32_t replica, uint64_t samples,
                            uint64_t seed, float scale = 1.0f);

// The shard's chunks of each gradient; chunk i begins (misalign + i) % 64 bytes past an aligned
// address and ends with its allocation. Of the contributors whose bit is set in `halves` (by
// position) they are bfloat16.
std::vector<GradientContribution> CutContributions(const std::vector<FullGradient>& gradients,
                                                   const Sharding& sharding, int shard,
                                                   int misalign, uint32_t halves = 0);

// The formulas of apply_pass.h and the reference's rule, element by element with std::fma, over the
// whole vector. squared_norms are those of ApplyPass::MeasureNorms.
void OracleApply(const VariableLayout& layout, const OptimizerSpec& optimizer,
                 const OptimizerReference& reference, uint64_t step,
                 const std::vector<FullGradient>& gradients,
                 const std::vector<double>& squared_norms, const ConstStateVectors& from,
                 const StateVectors& to);

// The same mathematics in double over many steps, norms included.
struct DoubleState {
  std::vector<double> weights, slots[kMaxSlots], ema;
};
DoubleState ToDouble(const OwnedState& state, const OptimizerSpec& optimizer, int64_t elements);
void DoubleApply(const VariableLayout& layout, const OptimizerSpec& optimizer,
                 const OptimizerReference& reference, uint64_t step,
                 const std::vector<FullGradient>& gradients, DoubleState* state);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_PS_SERVER_STORE_STORE_TEST_UTIL_H_
