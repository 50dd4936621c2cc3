// While an object lives, floating-point operations of its thread read denormal numbers as zeros and
// write zeros instead of them, which is what the instructions for Bfloat16 always do.
#ifndef PUSHPULL_KERNELS_CPU_FLUSH_DENORMALS_H_
#define PUSHPULL_KERNELS_CPU_FLUSH_DENORMALS_H_

#include <cstdint>

namespace pushpull {

class FlushDenormals {
 public:
  FlushDenormals() : saved_(Get()) { Set(saved_ | kFlush); }
  ~FlushDenormals() { Set(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__aarch64__)
  static constexpr uint64_t kFlush = 1 << 24;  // FPCR.FZ, for operands and results
  static uint64_t Get() { return __builtin_aarch64_get_fpcr64(); }
  static void Set(uint64_t fpcr) { __builtin_aarch64_set_fpcr64(fpcr); }
#else
  static constexpr uint64_t kFlush = 0x8000 | 0x0040;  // flush to zero, denormals are zeros
  static uint64_t Get() { return __builtin_ia32_stmxcsr(); }
  static void Set(uint64_t mxcsr) { __builtin_ia32_ldmxcsr(static_cast<unsigned>(mxcsr)); }
#endif
  const uint64_t saved_;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_FLUSH_DENORMALS_H_
