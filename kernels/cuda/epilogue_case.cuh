// What the epilogues of the two directions of a convolution have in common.
#ifndef PUSHPULL_KERNELS_CUDA_EPILOGUE_CASE_CUH_
#define PUSHPULL_KERNELS_CUDA_EPILOGUE_CASE_CUH_

namespace pushpull::PUSHPULL_CUDA {

// The cases that an epilogue of FinishStaged (convolution_product.cuh) distinguishes before the
// loop over its elements.
enum class EpilogueCase {
  kVectors,      // whole vectors of eight columns, and no operand that is rare
  kVectorsMore,  // whole vectors, and such an operand
  kAny,          // columns that are no multiple of 8, one by one
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_EPILOGUE_CASE_CUH_
