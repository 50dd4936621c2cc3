// The fast CPU operators (AVX2 or AVX-512). Dense convolutions are matrix products that compute the
// lazy value of their input while they pack it; depthwise convolutions have kernels of their own.
// Work is cut into fixed pieces whose results are combined in a fixed order, so results do not
// depend on the number of threads.
#ifndef PUSHPULL_KERNELS_CPU_FAST_OPERATORS_H_
#define PUSHPULL_KERNELS_CPU_FAST_OPERATORS_H_

#include <memory>

#include "common/base/thread_pool.h"
#include "kernels/operators.h"

namespace pushpull {

// `pool` must outlive the result. No other threads are used or started. Depthwise kernels larger
// than 7 are a CHECK failure. The CPU must have AVX2 and FMA.
std::unique_ptr<Operators<float>> MakeFastOperators(ThreadPool* pool);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_FAST_OPERATORS_H_
