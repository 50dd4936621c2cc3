// Times every call of another Operators object and reports it with the operations and bytes it
// could not avoid.
#ifndef PUSHPULL_KERNELS_PROFILED_OPERATORS_H_
#define PUSHPULL_KERNELS_PROFILED_OPERATORS_H_

#include <cstdint>
#include <memory>

#include "kernels/operators.h"

namespace pushpull {

struct OperatorRecord {
  const char* name =
      "";  // "convolution", "convolution_backward", "depthwise_backward", ... (static string)
  Shape in, out;
  int kernel = 1;
  int stride = 1;
  double flops = 0;  // 2 per multiply-add
  double bytes = 0;  // every tensor the operator must read or write, once
  int64_t nanoseconds = 0;
};

class OperatorProfiler {
 public:
  virtual ~OperatorProfiler() = default;
  // Called on the calling thread after each operator, in program order.
  virtual void Record(const OperatorRecord& record) = 0;
};

// Wall time in nanoseconds from some origin; the default clock below.
int64_t SteadyNanoseconds();

// Both must outlive the result. `now` is another clock where wall time would measure the neighbours
// of a shared machine. Operators of a GPU only queue work: `nanoseconds` is what the queueing took;
// record an event of the device in OperatorProfiler::Record to learn the rest. T is float or
// Bfloat16.
template <typename T>
std::unique_ptr<Operators<T>> MakeProfiledOperators(Operators<T>* operators,
                                                    OperatorProfiler* profiler,
                                                    int64_t (*now)() = SteadyNanoseconds);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_PROFILED_OPERATORS_H_
