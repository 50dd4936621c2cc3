// The tensor cores' product of small Bfloat16 matrices, D[16][8] += A[16][16] B[16][8], and the
// loads that feed it. All 32 lanes of a warp call these functions together; each holds a fragment
// of the matrices in registers, two numbers in one register, the first in the low half. PTX defines
// the fragments for mma.m16n8k16 (row, col) so, with g = lane / 4 and t = lane % 4:
//
//   A[16][16]  a[0]: row g,     columns 2t, 2t+1      a[2]: row g,     columns 2t+8, 2t+9
//              a[1]: row g + 8, columns 2t, 2t+1      a[3]: row g + 8, columns 2t+8, 2t+9
//   B[16][8]   b[0]: column g,  rows 2t, 2t+1         b[1]: column g,  rows 2t+8, 2t+9
//   D[16][8]   d[0], d[1]: row g, columns 2t, 2t+1    d[2], d[3]: row g + 8, the same columns
//
//   A  columns 0..7  8..15        D  columns 0..7
//     .-------.-------.             .------------.
//     | a[0]  | a[2]  | rows 0..7   | d[0], d[1] |    a quarter of A, and a half of D,
//     |-------|-------|             |------------|    is spread over the 32 lanes
//     | a[1]  | a[3]  | rows 8..15  | d[2], d[3] |
//     '-------'-------'             '------------'
#ifndef PUSHPULL_KERNELS_CUDA_MATRIX_UNIT_CUH_
#define PUSHPULL_KERNELS_CUDA_MATRIX_UNIT_CUH_

#include "kernels/bfloat16.h"
#include "kernels/cuda/numbers.cuh"
#ifdef PUSHPULL_CUDA_EMULATION
#include "kernels/cuda/emulation/tensor_core.h"
#endif

namespace pushpull::PUSHPULL_CUDA {

// Loads four 8x8 matrices from shared memory in one instruction. Lane l passes the address of row
// l % 8 of matrix l / 8, which must be 16-byte aligned. out[i] becomes row g, columns 2t and 2t+1,
// of matrix i.
__device__ __forceinline__ void LoadMatrices(const Bfloat16* row, unsigned out[4]) {
#ifdef PUSHPULL_CUDA_EMULATION
  CheckVector(row, 16);
  const emulation::LaneValues* const rows =
      emulation::GatherWarp({{reinterpret_cast<uint64_t>(row)}});
  const unsigned g = emulation::LaneId() / 4, t = emulation::LaneId() % 4;
  for (unsigned i = 0; i < 4; ++i) {
    const auto* const numbers = reinterpret_cast<const Bfloat16*>(rows[8 * i + g].values[0]);
    out[i] = numbers[2 * t].bits | static_cast<unsigned>(numbers[2 * t + 1].bits) << 16;
  }
#else
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
#endif
}

// As LoadMatrices, but transposes the matrices: out[i] becomes column g, rows 2t and 2t+1, of
// matrix i. So an operand that lies the other way round needs no transposing copy.
__device__ __forceinline__ void LoadMatricesTransposed(const Bfloat16* row, unsigned out[4]) {
#ifdef PUSHPULL_CUDA_EMULATION
  CheckVector(row, 16);
  const emulation::LaneValues* const rows =
      emulation::GatherWarp({{reinterpret_cast<uint64_t>(row)}});
  const unsigned g = emulation::LaneId() / 4, t = emulation::LaneId() % 4;
  for (unsigned i = 0; i < 4; ++i) {
    const auto* const first = reinterpret_cast<const Bfloat16*>(rows[8 * i + 2 * t].values[0]);
    const auto* const second = reinterpret_cast<const Bfloat16*>(rows[8 * i + 2 * t + 1].values[0]);
    out[i] = first[g].bits | static_cast<unsigned>(second[g].bits) << 16;
  }
#else
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
#endif
}

// D += A B without tensor cores. a_of(i, lane) and b_of(i, lane) return register i of another lane.
template <typename FetchA, typename FetchB>
__device__ __forceinline__ void MultiplyAddByLanes(unsigned lane, float d[4], FetchA a_of,
                                                   FetchB b_of) {
  const unsigned g = lane / 4, t = lane % 4;
#pragma unroll
  for (unsigned pair = 0; pair < 8; ++pair) {
    const unsigned half = pair / 4, source = pair % 4;
    const unsigned rows[2] = {a_of(2 * half, 4 * g + source), a_of(2 * half + 1, 4 * g + source)};
    const unsigned columns[2] = {b_of(half, 4 * (2 * t) + source),
                                 b_of(half, 4 * (2 * t + 1) + source)};
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned a = rows[i / 2], b = columns[i % 2];
      d[i] += __uint_as_float(a << 16) * __uint_as_float(b << 16);
      d[i] += __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
    }
  }
}

// D += A B, accumulated in float.  a, b and d are the fragments described above.
__device__ __forceinline__ void MultiplyAdd(const unsigned a[4], const unsigned b[2], float d[4]) {
#if defined(PUSHPULL_CUDA_EMULATION)
  emulation::MultiplyAdd(a, b, d);
#elif __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  // The tensor cores of Turing (sm_75) do not support bfloat16.
  MultiplyAddByLanes(
      threadIdx.x % 32, d,
      [&](unsigned i, unsigned lane) { return __shfl_sync(0xffffffffu, a[i], lane); },
      [&](unsigned i, unsigned lane) { return __shfl_sync(0xffffffffu, b[i], lane); });
#endif
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_MATRIX_UNIT_CUH_
