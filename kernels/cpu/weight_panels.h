// Packs weights [taps, in, out] into panels as the right operand of a matrix product.
#ifndef PUSHPULL_KERNELS_CPU_WEIGHT_PANELS_H_
#define PUSHPULL_KERNELS_CPU_WEIGHT_PANELS_H_

#include <cstdint>

#include "kernels/bfloat16.h"
#include "kernels/cpu/input_phases.h"
#include "kernels/cpu/packed_numbers.h"
#include "kernels/cpu/panels.h"

namespace pushpull {

// An immutable view of weights in one of two roles. kForward is the matrix [taps * in, out];
// kTransposed is [taps * out, in], each tap transposed, for the input gradient.
struct WeightOperand {
  enum class Role { kForward, kTransposed };
  const float* weights;
  int64_t taps, in, out;
  Role role;
  // Only with kTransposed: the phase of the input whose taps these are, or null for all taps. It
  // must outlive the view.
  const InputPhase* phase = nullptr;

  // The view of a phase's taps.
  WeightOperand OfPhase(const InputPhase& taken) const {
    return {weights, taken.taps(), in, out, Role::kTransposed, &taken};
  }
  // The number of tap i in `weights`.
  int64_t Tap(int64_t i) const { return phase == nullptr ? i : phase->Tap(i); }
  int64_t inner() const { return taps * (role == Role::kForward ? in : out); }
  int64_t outer() const { return role == Role::kForward ? out : in; }
  // Writes one panel of the outer() channels to `to`, dense [inner(), panel.width] with zeros from
  // column panel.valid on. The other two types take rounded weights as MultiplyPanel wants them:
  // BfloatAsFloat [EvenRows(inner()), panel.width], Bfloat16 the same in pairs of rows,
  // [EvenRows(inner()) / 2, panel.width, 2].
  void Pack(const Panel& panel, float* to) const;
  void Pack(const Panel& panel, Bfloat16* to) const;
  void Pack(const Panel& panel, BfloatAsFloat* to) const;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_WEIGHT_PANELS_H_
