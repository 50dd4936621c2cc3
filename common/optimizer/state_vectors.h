// The vectors of one version of a shard: weights, optimizer slots and EMA. Each is float32, has the
// shard's length and is 64-byte aligned. The pointers own nothing; whoever hands them out defines
// their lifetime.
#ifndef PUSHPULL_COMMON_OPTIMIZER_STATE_VECTORS_H_
#define PUSHPULL_COMMON_OPTIMIZER_STATE_VECTORS_H_

#include <array>
#include <cstddef>

namespace pushpull {

// The most slots that an optimizer can have per variable.
inline constexpr int kMaxSlots = 2;

template <typename T>
struct BasicStateVectors {
  T* weights = nullptr;
  std::array<T*, kMaxSlots> slots{};  // null beyond the optimizer's slots
  T* ema = nullptr;                   // null without EMA

  BasicStateVectors<const T> AsConst() const {
    BasicStateVectors<const T> result{weights, {}, ema};
    for (size_t i = 0; i < slots.size(); ++i) result.slots[i] = slots[i];
    return result;
  }
};

using StateVectors = BasicStateVectors<float>;
using ConstStateVectors = BasicStateVectors<const float>;

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_OPTIMIZER_STATE_VECTORS_H_
