// The part of cuBLASLt 13 that this project calls. Declared by hand, as cudnn_api.h explains.
// NVIDIA's documentation of "cuBLASLt" describes the functions.
#ifndef PUSHPULL_KERNELS_CUDA_VENDOR_CUBLASLT_API_H_
#define PUSHPULL_KERNELS_CUDA_VENDOR_CUBLASLT_API_H_

#include <cstddef>
#include <cstdint>

namespace pushpull::cublaslt {

using Handle = void*;
using Description = void*;  // of a product, a matrix or a preference
using Stream = void*;       // a cudaStream_t

// A status is an int: 0 is success.
constexpr int kSuccess = 0;
constexpr int kNotSupported = 15;

enum DataType : int { kFloat = 0, kBfloat16 = 14 };
constexpr int kComputeFloat = 68;  // no rounding of floats to TF32

enum ProductAttribute : int { kTransposeA = 3, kTransposeB = 4 };
enum Transposition : int32_t { kNotTransposed = 0, kTransposed = 1 };
enum MatrixAttribute : int { kOrder = 1 };
constexpr int32_t kRowMajor = 1;
enum PreferenceAttribute : int {
  kMaxWorkspaceBytes = 1,
  // The alignment of the addresses that algorithms may assume; 256 if it is not set.
  kMinAlignmentA = 5,
  kMinAlignmentB = 6,
  kMinAlignmentC = 7,
  kMinAlignmentD = 8,
};

struct Algorithm {
  uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  size_t workspace_bytes;
  int state;  // a status
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

// The functions of the library, under the names in the comments.
struct Api {
  size_t (*get_version)() = nullptr;                // cublasLtGetVersion: 130401 for 13.4.1
  const char* (*get_status_string)(int) = nullptr;  // cublasLtGetStatusString
  int (*create)(Handle*) = nullptr;                 // cublasLtCreate
  int (*destroy)(Handle) = nullptr;                 // cublasLtDestroy
  int (*product_create)(Description*, int compute, int scale_type) = nullptr;  // ..MatmulDescCreate
  int (*product_destroy)(Description) = nullptr;                        // cublasLtMatmulDescDestroy
  int (*product_set)(Description, int, const void*, size_t) = nullptr;  // ..MatmulDescSetAttribute
  // cublasLtMatrixLayoutCreate: type, rows, columns, leading dimension
  int (*matrix_create)(Description*, int, uint64_t, uint64_t, int64_t) = nullptr;
  int (*matrix_destroy)(Description) = nullptr;  // cublasLtMatrixLayoutDestroy
  int (*matrix_set)(Description, int, const void*, size_t) = nullptr;  // ..MatrixLayoutSetAttribute
  int (*preference_create)(Description*) = nullptr;  // cublasLtMatmulPreferenceCreate
  int (*preference_destroy)(Description) = nullptr;  // cublasLtMatmulPreferenceDestroy
  // cublasLtMatmulPreferenceSetAttribute
  int (*preference_set)(Description, int, const void*, size_t) = nullptr;
  // cublasLtMatmulAlgoGetHeuristic: product, A, B, C, D, preference, wanted, results, found
  int (*find_algorithms)(Handle, Description, Description, Description, Description, Description,
                         Description, int, HeuristicResult*, int*) = nullptr;
  // cublasLtMatmul: product, alpha, A, B, beta, C, D, algorithm, workspace, stream
  int (*multiply)(Handle, Description, const void* alpha, const void* a, Description a_layout,
                  const void* b, Description b_layout, const void* beta, const void* c,
                  Description c_layout, void* d, Description d_layout, const Algorithm*,
                  void* workspace, size_t workspace_bytes, Stream) = nullptr;
};

}  // namespace pushpull::cublaslt

#endif  // PUSHPULL_KERNELS_CUDA_VENDOR_CUBLASLT_API_H_
