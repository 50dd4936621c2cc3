// The fast CPU operators, for each instruction set of common/base/cpu_isa.h. Dense convolutions are
// matrix products that compute the lazy value of their input while they pack it; depthwise
// convolutions have kernels of their own. Work is cut into fixed pieces whose results are combined
// in a fixed order, so results do not depend on the number of threads.
#ifndef PUSHPULL_KERNELS_CPU_FAST_OPERATORS_H_
#define PUSHPULL_KERNELS_CPU_FAST_OPERATORS_H_

#include <memory>

#include "common/base/thread_pool.h"
#include "kernels/cpu/packed_numbers.h"
#include "kernels/operators.h"

namespace pushpull {

// `pool` must outlive the result. No other threads are used or started. Depthwise kernels larger
// than 7, and shapes that CheckConvolution does not accept, are a CHECK failure.
// T is float or Bfloat16.
template <typename T = float>
std::unique_ptr<Operators<T>> MakeFastOperators(ThreadPool* pool);

// The same with products of P (kernels/cpu/packed_numbers.h). MakeFastOperators<Bfloat16> chooses
// the faster P for ChosenCpuIsa(); the results have the same bits with both, except in tiles
// (kernels/cpu/gemm.h).
template <typename P>
std::unique_ptr<Operators<TensorOf<P>>> MakeFastOperatorsOf(ThreadPool* pool);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_FAST_OPERATORS_H_
