// Fills the state of a shard before the first step. A checkpoint does not pass through here: it
// fills the vectors of VariableStore::BeginFill by Checkpoint::ReadWeights, ReadSlot and ReadEma.
#ifndef PUSHPULL_COMMON_OPTIMIZER_INITIAL_STATE_H_
#define PUSHPULL_COMMON_OPTIMIZER_INITIAL_STATE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

#include "common/model/sharding.h"
#include "common/model/variable_layout.h"
#include "common/optimizer/optimizer.h"
#include "common/optimizer/state_vectors.h"

namespace pushpull {

// Writes elements [first, first + count) of the variable's initial value to `out`.
using InitialValueFn =
    absl::FunctionRef<void(int64_t variable, int64_t first, int64_t count, float* out)>;

// Fills the shard's vectors: weights by `initial_value`, slots of trainable variables with their
// initial values, and the EMA with the weights. `shard` is the shard's range in the flat vector.
// Does not write the padding or the slots of moving statistics, which are zero already.
void FillInitialState(const VariableLayout& layout, ElementRange shard,
                      const OptimizerSpec& optimizer, InitialValueFn initial_value,
                      const StateVectors& vectors);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_OPTIMIZER_INITIAL_STATE_H_
