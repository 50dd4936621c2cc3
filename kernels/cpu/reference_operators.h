// The reference operators that tests compare against. Each operator is written as its definition
// reads (compute the lazy value, then convolve) in plain loops. Single-threaded and slow; sums run
// in double.
#ifndef PUSHPULL_KERNELS_CPU_REFERENCE_OPERATORS_H_
#define PUSHPULL_KERNELS_CPU_REFERENCE_OPERATORS_H_

#include <memory>

#include "kernels/operators.h"

namespace pushpull {

// T is float or double.
template <typename T>
std::unique_ptr<Operators<T>> MakeReferenceOperators();

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_REFERENCE_OPERATORS_H_
