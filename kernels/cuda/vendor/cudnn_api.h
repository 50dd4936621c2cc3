// The part of cuDNN 9's backend interface (the graph interface in C) that this project calls.
// Declared by hand, since neither the build nor the host of a program needs cuDNN. NVIDIA's
// documentation of the "cuDNN backend API" describes descriptors and attributes;
// tests/reference/vendor_api_check.sh compares the numbers with those of its headers.
#ifndef PUSHPULL_KERNELS_CUDA_VENDOR_CUDNN_API_H_
#define PUSHPULL_KERNELS_CUDA_VENDOR_CUDNN_API_H_

#include <cstddef>
#include <cstdint>

namespace pushpull::cudnn {

using Handle = void*;
using Descriptor = void*;
using Stream = void*;  // a cudaStream_t

// A status is an int: 0 is success. A status from 3000 to 3999 means that something is not
// supported.
constexpr int kSuccess = 0;
constexpr bool IsNotSupported(int status) { return status / 1000 == 3; }

enum DescriptorType : int {
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristics = 4,
  kExecutionPlan = 5,
  kConvolutionForward = 10,
  kConvolutionBackwardFilter = 11,
  kConvolutionBackwardData = 12,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
};

enum AttributeType : int {
  kTypeHandle = 0,
  kTypeDataType = 1,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypeFloat = 4,
  kTypeVoidPointer = 6,
  kTypeConvolutionMode = 7,
  kTypeHeuristicsMode = 8,
  kTypeNumericalNote = 11,
  kTypeDescriptor = 15,
};

enum AttributeName : int {
  kConvolutionComputeType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDimensions = 106,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kEngineConfigEngine = 300,
  kPlanHandle = 400,
  kPlanEngineConfig = 401,
  kPlanWorkspaceSize = 402,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kBackwardDataAlpha = 706,
  kBackwardDataBeta = 707,
  kBackwardDataConvolution = 708,
  kBackwardDataW = 709,
  kBackwardDataDx = 710,
  kBackwardDataDy = 711,
  kBackwardFilterAlpha = 712,
  kBackwardFilterBeta = 713,
  kBackwardFilterConvolution = 714,
  kBackwardFilterDw = 715,
  kBackwardFilterX = 716,
  kBackwardFilterDy = 717,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,  // bytes
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorUniqueId = 906,
  kVariantPackIds = 1000,
  kVariantPackPointers = 1001,
  kVariantPackWorkspace = 1003,
  kEngineNumericalNotes = 1303,
};

enum DataType : int { kFloat = 0, kBfloat16 = 9 };
constexpr int kCrossCorrelation = 1;
constexpr int kHeuristicsModeA = 3;  // the most thorough one that gives an answer for all shapes

// What an engine does to the numbers.
enum NumericalNote : int {
  kTensorCore = 0,
  kDownConvertsInputs = 1,
  kReducedPrecisionReduction = 2,
  kFft = 3,
  kNondeterministic = 4,
  kWinograd = 5,
  kWinogradTile4 = 6,
  kWinogradTile6 = 7,
  kWinogradTile13 = 8,
};
constexpr int kMaxNumericalNotes = 16;

// The functions of the library, under the names in the comments.
struct Api {
  size_t (*get_version)() = nullptr;                     // cudnnGetVersion: 92600 for 9.26.0
  const char* (*get_error_string)(int) = nullptr;        // cudnnGetErrorString
  int (*create)(Handle*) = nullptr;                      // cudnnCreate
  int (*destroy)(Handle) = nullptr;                      // cudnnDestroy
  int (*set_stream)(Handle, Stream) = nullptr;           // cudnnSetStream
  int (*create_descriptor)(int, Descriptor*) = nullptr;  // cudnnBackendCreateDescriptor
  int (*destroy_descriptor)(Descriptor) = nullptr;       // cudnnBackendDestroyDescriptor
  int (*finalize)(Descriptor) = nullptr;                 // cudnnBackendFinalize
  // cudnnBackendSetAttribute: name, type, count, array
  int (*set_attribute)(Descriptor, int, int, int64_t, const void*) = nullptr;
  // cudnnBackendGetAttribute: name, type, requested count, count, array
  int (*get_attribute)(Descriptor, int, int, int64_t, int64_t*, void*) = nullptr;
  int (*execute)(Handle, Descriptor plan, Descriptor pack) = nullptr;  // cudnnBackendExecute
};

}  // namespace pushpull::cudnn

#endif  // PUSHPULL_KERNELS_CUDA_VENDOR_CUDNN_API_H_
