// Division by a number that is known at the launch, in three instructions instead of about 20.
#ifndef PUSHPULL_KERNELS_CUDA_DIVISOR_H_
#define PUSHPULL_KERNELS_CUDA_DIVISOR_H_

#include <cstdint>

#include "kernels/cuda/platform.h"
#include "kernels/host_device.h"

namespace pushpull::PUSHPULL_CUDA {

// a / b, rounded up, for numbers that are not negative.
template <typename Result = int>
constexpr Result CeilDivide(int64_t a, int64_t b) {
  return static_cast<Result>((a + b - 1) / b);
}

// Divides numbers from 0 to 2^31 - 1 by a number from 1 to 2^31 - 1. With l = ceil(log2(divisor))
// and m = floor(2^32 * (2^l - divisor) / divisor) + 1, the quotient of n is
// (floor(m * n / 2^32) + n) / 2^l, rounded down (Granlund and Montgomery, "Division by invariant
// integers using multiplication", 1994).
class Divisor {
 public:
  explicit Divisor(int divisor) : divisor_(divisor) {
    while (int64_t{1} << shift_ < divisor) ++shift_;
    const uint64_t excess = (uint64_t{1} << shift_) - static_cast<uint64_t>(divisor);
    multiplier_ = static_cast<uint32_t>((excess << 32) / static_cast<uint64_t>(divisor) + 1);
  }

  PUSHPULL_HOST_DEVICE int Quotient(int n) const {
    const auto number = static_cast<uint32_t>(n);
    const auto high = static_cast<uint32_t>(uint64_t{multiplier_} * number >> 32);
    return static_cast<int>((high + number) >> shift_);
  }
  // Returns the quotient and puts the rest into *rest. For a negative number both are meaningless;
  // they are computed as unsigned numbers, because signed ones must not overflow.
  PUSHPULL_HOST_DEVICE int Quotient(int n, int* rest) const {
    const int quotient = Quotient(n);
    *rest = static_cast<int>(static_cast<uint32_t>(n) -
                             static_cast<uint32_t>(quotient) * static_cast<uint32_t>(divisor_));
    return quotient;
  }

 private:
  int divisor_;
  uint32_t multiplier_ = 0;
  int shift_ = 0;
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_DIVISOR_H_
