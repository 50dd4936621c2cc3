// The two register-tiled matrix products that all dense operators use. They are compiled for every
// instruction set, and ChosenCpuIsa() selects one at run time. AVX2 and AVX-512 give the same bits
// (NEON: see HasFusedMultiplyAdd), because each number of the result is one chain of multiply-adds
// in a fixed order. Operands are packed in panels (kernels/cpu/panels.h). Thread-safe functions
// that change nothing but c.
//
// Operands are packed numbers (kernels/cpu/packed_numbers.h), the result is always of floats.
// Numbers of type Bfloat16 are multiplied in pairs that are neighbours in the sum, as the CPU's
// instruction for them does it: c = (c + a1 * b1) + a0 * b0, where each addition rounds once, and
// denormal numbers count as zeros. The calling thread must have FlushDenormals, as it has in a
// KernelLoop. The two numbers of a pair must lie next to each other in both operands: an operand
// whose rows are what the product sums over has its rows in pairs, [EvenRows / 2, width, 2]. A CPU
// without the instruction splits each pair into two floats, which is slow and only for tests of
// operands in pairs.
//
// In the tiles of AMX (CpuIsa::kAmxBf16) numbers of type Bfloat16 are added up in another order. A
// sum has steps. In MultiplyPanel a panel is a step; in MultiplyTransposed each 384 rows are cut
// into the fewest steps of at most 32 rows, as equal as possible. A step is
// c = c + (even + odd), where even = a0 * b0 + a2 * b2 + ... and odd = a1 * b1 + a3 * b3 + ... are
// chains of fused multiply-adds that begin with zero. Denormal numbers count as zeros here too.
//
// BfloatAsFloat gives the same bits as pairs without tiles, with multiplications of floats only. It
// has the layout of floats, with EvenRows rows. SSE4 rounds each product to a float, so for these
// two types it gives the same bits as long as no product overflows or is denormal.
#ifndef PUSHPULL_KERNELS_CPU_GEMM_H_
#define PUSHPULL_KERNELS_CPU_GEMM_H_

#include <cstdint>

#include "kernels/bfloat16.h"
#include "kernels/cpu/packed_numbers.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/prefetcher.h"

namespace pushpull {

// c[rows, width] = a[first_row .. first_row + rows, inner] * b[inner, width], or the part of it
// that a range of the panels of `inner` adds. The parts have to follow each other from the first
// panel on: the first writes c, each other one adds to it, and the result has the same bits as the
// whole.
//   a  a block of a_rows rows, packed in the panels of the range, with zeros in their padding
//   b  one dense panel of `width` (8, 16, 24 or, with AVX-512, 32) columns with a row per channel
//      of the range, EvenRows of them; Bfloat16 has them in pairs
//   c  dense
//   prefetcher  does a step for each register tile, in tiles of AMX for several rows of tiles; may
//               be null
void MultiplyPanel(const Panels& inner, const PanelRange& range, const float* a, int64_t a_rows,
                   int64_t first_row, int64_t rows, const float* b, int width, float* c,
                   Prefetcher* prefetcher = nullptr);
void MultiplyPanel(const Panels& inner, const PanelRange& range, const Bfloat16* a, int64_t a_rows,
                   int64_t first_row, int64_t rows, const Bfloat16* b, int width, float* c,
                   Prefetcher* prefetcher = nullptr);
void MultiplyPanel(const Panels& inner, const PanelRange& range, const BfloatAsFloat* a,
                   int64_t a_rows, int64_t first_row, int64_t rows, const BfloatAsFloat* b,
                   int width, float* c, Prefetcher* prefetcher = nullptr);

enum class Store { kWrite, kAdd };

// c[a_valid, b_width] = or += transpose(a) * b, summed over the rows.
//   a  a dense panel [rows, a_width] of which only the first a_valid columns count; rows > 0
//   b  a dense panel [rows, b_width], where b_width is 8, 16, 24 or, with AVX-512, 32
//   c  has rows that are ldc floats apart
//   prefetcher  as above
// Bfloat16 takes a and b with their rows in pairs, from PairRows. BfloatAsFloat takes EvenRows
// rows.
void MultiplyTransposed(const float* a, int a_width, int a_valid, const float* b, int b_width,
                        int64_t rows, float* c, int64_t ldc, Store store,
                        Prefetcher* prefetcher = nullptr);
void MultiplyTransposed(const Bfloat16* a, int a_width, int a_valid, const Bfloat16* b, int b_width,
                        int64_t rows, float* c, int64_t ldc, Store store,
                        Prefetcher* prefetcher = nullptr);
void MultiplyTransposed(const BfloatAsFloat* a, int a_width, int a_valid, const BfloatAsFloat* b,
                        int b_width, int64_t rows, float* c, int64_t ldc, Store store,
                        Prefetcher* prefetcher = nullptr);

// Whether products of Bfloat16 are faster than those of BfloatAsFloat with ChosenCpuIsa(). In the
// tiles of AMX they are, because these do many times as many multiply-adds. With the instruction
// for pairs AMD's processors (Zen 4 and Zen 5) do twice as many multiply-adds as with floats,
// Intel's (Emerald Rapids) only 0.7 times as many.
bool PairsAreFaster();

// Copies rows [first, first + rows) of a block of block_rows rows, packed in a range of panels, to
// the same places of `to`, in pairs: a panel of `from` is [block_rows, width], one of `to` is
// [EvenRows(block_rows) / 2, width, 2]. `first` is even, and the second of a pair that lacks one is
// zero.
void PairRows(const Panels& panels, const PanelRange& range, const Bfloat16* from,
              int64_t block_rows, int64_t first, int64_t rows, Bfloat16* to);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_GEMM_H_
