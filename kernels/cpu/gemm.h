// The two register-tiled matrix products that all dense operators use, for AVX2 and AVX-512: the
// one that ChosenCpuIsa() says. Both give the same bits, since each number of the result is one
// chain of fused multiply-adds in the order of the sum. Operands are packed in panels
// (kernels/cpu/panels.h). Thread-safe functions that change nothing but c.
#ifndef PUSHPULL_KERNELS_CPU_GEMM_H_
#define PUSHPULL_KERNELS_CPU_GEMM_H_

#include <cstdint>

#include "kernels/cpu/panels.h"

namespace pushpull {

// c[rows, width] = a[first_row .. first_row + rows, inner] * b[inner, width].
//   a  a block of a_rows rows, packed in the panels `inner`
//   b  one dense panel of `width` (8, 16 or 24) columns with a row per channel of `inner`
//   c  dense
void MultiplyPanel(const Panels& inner, const float* a, int64_t a_rows, int64_t first_row,
                   int64_t rows, const float* b, int width, float* c);

enum class Store { kWrite, kAdd };

// c[a_valid, b_width] = or += transpose(a) * b, summed over the rows.
//   a  a dense panel [rows, a_width] of which only the first a_valid columns are read
//   b  a dense panel [rows, b_width], where b_width is 8, 16 or 24
//   c  has rows that are ldc floats apart
void MultiplyTransposed(const float* a, int a_width, int a_valid, const float* b, int b_width,
                        int64_t rows, float* c, int64_t ldc, Store store);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_GEMM_H_
