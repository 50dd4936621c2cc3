// Wraps an Operators object: times each call and reports it together with the arithmetic operations
// and the memory traffic that the call cannot avoid.
#ifndef PUSHPULL_KERNELS_PROFILED_OPERATORS_H_
#define PUSHPULL_KERNELS_PROFILED_OPERATORS_H_

#include <cstdint>
#include <memory>

#include "kernels/operators.h"

namespace pushpull {

struct OperatorRecord {
  // "convolution", "convolution_backward", "depthwise_backward", ...; a static string.
  const char* name = "";
  Shape in, out;
  int kernel = 1;
  int stride = 1;
  double flops = 0;  // 2 per multiply-add
  double bytes = 0;  // every tensor that the operator must read or write, counted once
  int64_t nanoseconds = 0;
};

class OperatorProfiler {
 public:
  virtual ~OperatorProfiler() = default;
  // Called on the calling thread after each operator, in program order.
  virtual void Record(const OperatorRecord& record) = 0;
};

// The default clock: std::chrono::steady_clock in nanoseconds.
int64_t SteadyNanoseconds();

// `operators` and `profiler` must outlive the result, which has the thread rule of `operators`.
// Pass another clock as `now` (e.g. CPU time) if wall time would measure the other processes of a
// shared machine. The operators of a GPU only queue work, so `nanoseconds` is the time that the
// queueing took; record an event of the device in OperatorProfiler::Record to time the work itself.
// T is float or Bfloat16.
template <typename T>
std::unique_ptr<Operators<T>> MakeProfiledOperators(Operators<T>* operators,
                                                    OperatorProfiler* profiler,
                                                    int64_t (*now)() = SteadyNanoseconds);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_PROFILED_OPERATORS_H_
