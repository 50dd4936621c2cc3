// Helpers for the tests of optimizers and of the store: small models, aligned state, contributions
// at unaligned addresses, and two scalar reference implementations of the apply pass. The float one
// gives the same bits as the apply pass, the double one follows the same formulas.
#ifndef PUSHPULL_TESTS_TESTKIT_OPTIMIZER_TEST_UTIL_H_
#define PUSHPULL_TESTS_TESTKIT_OPTIMIZER_TEST_UTIL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/model/sharding.h"
#include "common/model/variable_layout.h"
#include "common/optimizer/apply_pass.h"
#include "common/optimizer/optimizer.h"
#include "common/optimizer/state_vectors.h"
#include "tests/testkit/optimizer_references.h"

namespace pushpull {

// Parses the text of a train_config.
OptimizerSpec MakeOptimizer(const std::string& train_config);
// Returns the optimizer with the reference's parameters, a learning rate that changes with the
// step, EMA on, and the further train_config fields in `rest`.
OptimizerSpec MakeOptimizer(const OptimizerReference& reference, const std::string& rest = "");
OptimizerSpec MakeMomentum();
OptimizerSpec MakeRmsProp();
OptimizerSpec MakeAdam(const std::string& rest = "");

VariableSpec MakeVariable(const std::string& name, std::vector<int64_t> shape);

// A model of about 11,000 elements with L2 weights, learning rate multipliers, frozen variables,
// moving statistics, odd sizes and a tensor that spans several pages.
VariableLayout MakeLayout();
// The same model with an additional tensor of several chunks.
VariableLayout MakeLargeLayout();

// Zero-initialised vectors, aligned to 64 bytes. Copies share the same memory.
class OwnedState {
 public:
  OwnedState(int64_t elements, const OptimizerSpec& optimizer);
  const StateVectors& vectors() const { return vectors_; }
  ConstStateVectors view() const { return vectors_.AsConst(); }
  int num_vectors() const { return 1 + num_slots_ + (vectors_.ema != nullptr ? 1 : 0); }
  // Returns a vector: the weights, then the slots, then the EMA. 0 <= i < num_vectors().
  float* vector(int i) const;
  void AppendVector(int i, std::vector<float>* all) const;
  // Returns all vectors, concatenated.
  std::vector<float> Flatten() const;
  // Returns the vectors from `element` on.
  ConstStateVectors From(int64_t element) const;
  void CopyFrom(const ConstStateVectors& from) const;

 private:
  int64_t elements_;
  int num_slots_;
  std::shared_ptr<float> owner_;
  StateVectors vectors_;
};

// Returns what FillInitialState makes of random weights drawn with the seed.
OwnedState InitialState(const VariableLayout& layout, const OptimizerSpec& optimizer,
                        uint64_t seed);

// The whole gradient of one contributor.
struct FullGradient {
  uint32_t replica = 0;
  uint64_t samples = 0;
  std::vector<float> values;
};

// Returns random values of about `scale`. The padding is random too, because the server must not
// rely on zeros there.
FullGradient RandomGradient(const VariableLayout& layout, uint32_t replica, uint64_t samples,
                            uint64_t seed, float scale = 1.0f);

// Cuts each gradient into the chunks of the shard. Chunk i begins (misalign + i) % 64 bytes past an
// aligned address and ends with its allocation. The chunks of contributor k are bfloat16 if bit k
// of `halves` is set.
std::vector<GradientContribution> CutContributions(const std::vector<FullGradient>& gradients,
                                                   const Sharding& sharding, int shard,
                                                   int misalign, uint32_t halves = 0);

// Applies the formulas of apply_pass.h and the rule of the reference to the whole vector, element
// by element with std::fma. `squared_norms` is the result of ApplyPass::MeasureNorms.
void OracleApply(const VariableLayout& layout, const OptimizerSpec& optimizer,
                 const OptimizerReference& reference, uint64_t step,
                 const std::vector<FullGradient>& gradients,
                 const std::vector<double>& squared_norms, const ConstStateVectors& from,
                 const StateVectors& to);

// A state in double, to which DoubleApply applies the same formulas. It computes the norms itself.
struct DoubleState {
  std::vector<double> weights, slots[kMaxSlots], ema;
};
DoubleState ToDouble(const OwnedState& state, const OptimizerSpec& optimizer, int64_t elements);
void DoubleApply(const VariableLayout& layout, const OptimizerSpec& optimizer,
                 const OptimizerReference& reference, uint64_t step,
                 const std::vector<FullGradient>& gradients, DoubleState* state);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_OPTIMIZER_TEST_UTIL_H_
