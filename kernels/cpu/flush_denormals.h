// While an object lives, floating-point operations of its thread read denormal numbers as zeros and
// write zeros instead of them, which is what the instructions for Bfloat16 always do.
#ifndef PUSHPULL_KERNELS_CPU_FLUSH_DENORMALS_H_
#define PUSHPULL_KERNELS_CPU_FLUSH_DENORMALS_H_

#include <xmmintrin.h>

namespace pushpull {

class FlushDenormals {
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  const unsigned saved_;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_FLUSH_DENORMALS_H_
