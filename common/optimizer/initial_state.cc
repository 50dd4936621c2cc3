// Tested by tests/ps_server/runtime/checkpoint_recovery_test.cc.
#include "common/optimizer/initial_state.h"

#include <algorithm>

namespace pushpull {

void FillInitialState(const VariableLayout& layout, ElementRange shard,
                      const OptimizerSpec& optimizer, InitialValueFn initial_value,
                      const StateVectors& vectors) {
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    const int64_t offset = layout.offset(i);
    const int64_t begin = std::max(offset, shard.begin);
    const int64_t count = std::min(offset + layout.num_elements(i), shard.end) - begin;
    if (count <= 0) continue;
    const int64_t at = begin - shard.begin;
    initial_value(i, begin - offset, count, vectors.weights + at);
    if (optimizer.has_ema) std::copy_n(vectors.weights + at, count, vectors.ema + at);
    if (layout.variables()[i].kind != VariableKind::kTrainable) continue;
    for (int slot = 0; slot < optimizer.num_slots(); ++slot) {
      std::fill_n(vectors.slots[slot] + at, count, optimizer.rule->slots()[slot].initial_value);
    }
  }
}

}  // namespace pushpull
