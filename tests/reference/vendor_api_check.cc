// Compares our declarations of cuDNN's and cuBLASLt's interfaces with NVIDIA's headers, and lets
// the real cuDNN check the descriptions of our convolutions, as far as it does that without a GPU.
// Built and run by vendor_api_check.sh.
#include <cublasLt.h>
#include <cudnn.h>

#include <cstdio>
#include <vector>

#include "kernels/cuda/vendor/cublaslt_api.h"
#include "kernels/cuda/vendor/cudnn_api.h"

namespace {

using namespace pushpull;  // NOLINT(google-build-using-namespace)

static_assert(cudnn::kSuccess == CUDNN_STATUS_SUCCESS);
static_assert(cudnn::IsNotSupported(CUDNN_STATUS_NOT_SUPPORTED));
static_assert(cudnn::IsNotSupported(CUDNN_STATUS_NOT_SUPPORTED_SHAPE));
static_assert(!cudnn::IsNotSupported(CUDNN_STATUS_BAD_PARAM));
static_assert(cudnn::kConvolution == CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
static_assert(cudnn::kEngine == CUDNN_BACKEND_ENGINE_DESCRIPTOR);
static_assert(cudnn::kEngineConfig == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
static_assert(cudnn::kEngineHeuristics == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
static_assert(cudnn::kExecutionPlan == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
static_assert(cudnn::kConvolutionForward == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
static_assert(cudnn::kConvolutionBackwardFilter ==
              CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
static_assert(cudnn::kConvolutionBackwardData ==
              CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
static_assert(cudnn::kOperationGraph == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
static_assert(cudnn::kVariantPack == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
static_assert(cudnn::kTensor == CUDNN_BACKEND_TENSOR_DESCRIPTOR);
static_assert(cudnn::kTypeHandle == CUDNN_TYPE_HANDLE);
static_assert(cudnn::kTypeDataType == CUDNN_TYPE_DATA_TYPE);
static_assert(cudnn::kTypeBoolean == CUDNN_TYPE_BOOLEAN);
static_assert(cudnn::kTypeInt64 == CUDNN_TYPE_INT64);
static_assert(cudnn::kTypeFloat == CUDNN_TYPE_FLOAT);
static_assert(cudnn::kTypeVoidPointer == CUDNN_TYPE_VOID_PTR);
static_assert(cudnn::kTypeConvolutionMode == CUDNN_TYPE_CONVOLUTION_MODE);
static_assert(cudnn::kTypeHeuristicsMode == CUDNN_TYPE_HEUR_MODE);
static_assert(cudnn::kTypeNumericalNote == CUDNN_TYPE_NUMERICAL_NOTE);
static_assert(cudnn::kTypeDescriptor == CUDNN_TYPE_BACKEND_DESCRIPTOR);
static_assert(cudnn::kConvolutionComputeType == CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
static_assert(cudnn::kConvolutionMode == CUDNN_ATTR_CONVOLUTION_CONV_MODE);
static_assert(cudnn::kConvolutionDilations == CUDNN_ATTR_CONVOLUTION_DILATIONS);
static_assert(cudnn::kConvolutionStrides == CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
static_assert(cudnn::kConvolutionPostPaddings == CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
static_assert(cudnn::kConvolutionPrePaddings == CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
static_assert(cudnn::kConvolutionSpatialDimensions == CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
static_assert(cudnn::kHeuristicsMode == CUDNN_ATTR_ENGINEHEUR_MODE);
static_assert(cudnn::kHeuristicsGraph == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
static_assert(cudnn::kHeuristicsResults == CUDNN_ATTR_ENGINEHEUR_RESULTS);
static_assert(cudnn::kEngineConfigEngine == CUDNN_ATTR_ENGINECFG_ENGINE);
static_assert(cudnn::kPlanHandle == CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
static_assert(cudnn::kPlanEngineConfig == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
static_assert(cudnn::kPlanWorkspaceSize == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
static_assert(cudnn::kForwardAlpha == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA);
static_assert(cudnn::kForwardBeta == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
static_assert(cudnn::kForwardConvolution == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
static_assert(cudnn::kForwardW == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
static_assert(cudnn::kForwardX == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
static_assert(cudnn::kForwardY == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
static_assert(cudnn::kBackwardDataAlpha == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA);
static_assert(cudnn::kBackwardDataBeta == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
static_assert(cudnn::kBackwardDataConvolution ==
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC);
static_assert(cudnn::kBackwardDataW == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
static_assert(cudnn::kBackwardDataDx == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
static_assert(cudnn::kBackwardDataDy == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
static_assert(cudnn::kBackwardFilterAlpha == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA);
static_assert(cudnn::kBackwardFilterBeta == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
static_assert(cudnn::kBackwardFilterConvolution ==
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC);
static_assert(cudnn::kBackwardFilterDw == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
static_assert(cudnn::kBackwardFilterX == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X);
static_assert(cudnn::kBackwardFilterDy == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
static_assert(cudnn::kGraphHandle == CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
static_assert(cudnn::kGraphOperations == CUDNN_ATTR_OPERATIONGRAPH_OPS);
static_assert(cudnn::kTensorAlignment == CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
static_assert(cudnn::kTensorDataType == CUDNN_ATTR_TENSOR_DATA_TYPE);
static_assert(cudnn::kTensorDimensions == CUDNN_ATTR_TENSOR_DIMENSIONS);
static_assert(cudnn::kTensorStrides == CUDNN_ATTR_TENSOR_STRIDES);
static_assert(cudnn::kTensorUniqueId == CUDNN_ATTR_TENSOR_UNIQUE_ID);
static_assert(cudnn::kVariantPackIds == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
static_assert(cudnn::kVariantPackPointers == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
static_assert(cudnn::kVariantPackWorkspace == CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
static_assert(cudnn::kEngineNumericalNotes == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
static_assert(cudnn::kFloat == CUDNN_DATA_FLOAT && cudnn::kBfloat16 == CUDNN_DATA_BFLOAT16);
static_assert(cudnn::kCrossCorrelation == CUDNN_CROSS_CORRELATION);
static_assert(cudnn::kHeuristicsModeA == CUDNN_HEUR_MODE_A);
static_assert(cudnn::kTensorCore == CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
static_assert(cudnn::kDownConvertsInputs == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
static_assert(cudnn::kReducedPrecisionReduction ==
              CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
static_assert(cudnn::kFft == CUDNN_NUMERICAL_NOTE_FFT);
static_assert(cudnn::kNondeterministic == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
static_assert(cudnn::kWinograd == CUDNN_NUMERICAL_NOTE_WINOGRAD);
static_assert(cudnn::kWinogradTile4 == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4);
static_assert(cudnn::kWinogradTile6 == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6);
static_assert(cudnn::kWinogradTile13 == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13);
static_assert(cudnn::kMaxNumericalNotes >= CUDNN_NUMERICAL_NOTE_TYPE_COUNT);

static_assert(cublaslt::kSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(cublaslt::kNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(cublaslt::kFloat == CUDA_R_32F && cublaslt::kBfloat16 == CUDA_R_16BF);
static_assert(cublaslt::kComputeFloat == CUBLAS_COMPUTE_32F);
static_assert(cublaslt::kTransposeA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(cublaslt::kTransposeB == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(cublaslt::kNotTransposed == CUBLAS_OP_N && cublaslt::kTransposed == CUBLAS_OP_T);
static_assert(cublaslt::kOrder == CUBLASLT_MATRIX_LAYOUT_ORDER);
static_assert(cublaslt::kRowMajor == CUBLASLT_ORDER_ROW);
static_assert(cublaslt::kMaxWorkspaceBytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(cublaslt::kMinAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(cublaslt::kMinAlignmentB == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(cublaslt::kMinAlignmentC == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(cublaslt::kMinAlignmentD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(sizeof(cublaslt::HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(sizeof(cublaslt::Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(offsetof(cublaslt::HeuristicResult, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(cublaslt::HeuristicResult, state) ==
              offsetof(cublasLtMatmulHeuristicResult_t, state));

int failures = 0;

void Check(const char* what, int status) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::printf("%s: %s\n", what, cudnnGetErrorString(static_cast<cudnnStatus_t>(status)));
  ++failures;
}

cudnnBackendDescriptor_t Make(int type) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  Check("create",
        cudnnBackendCreateDescriptor(static_cast<cudnnBackendDescriptorType_t>(type), &descriptor));
  return descriptor;
}
void Set(cudnnBackendDescriptor_t descriptor, int name, int type, int64_t count,
         const void* values) {
  Check("set",
        cudnnBackendSetAttribute(descriptor, static_cast<cudnnBackendAttributeName_t>(name),
                                 static_cast<cudnnBackendAttributeType_t>(type), count, values));
}
void SetInts(cudnnBackendDescriptor_t descriptor, int name, std::vector<int64_t> values) {
  Set(descriptor, name, cudnn::kTypeInt64, static_cast<int64_t>(values.size()), values.data());
}

cudnnBackendDescriptor_t Tensor(int64_t id, int type, int64_t n, int64_t c, int64_t h, int64_t w) {
  const cudnnBackendDescriptor_t tensor = Make(cudnn::kTensor);
  Set(tensor, cudnn::kTensorDataType, cudnn::kTypeDataType, 1, &type);
  SetInts(tensor, cudnn::kTensorDimensions, {n, c, h, w});
  SetInts(tensor, cudnn::kTensorStrides, {h * w * c, 1, w * c, c});
  SetInts(tensor, cudnn::kTensorUniqueId, {id});
  SetInts(tensor, cudnn::kTensorAlignment, {16});
  Check("tensor", cudnnBackendFinalize(tensor));
  return tensor;
}

// The three operations of a 3x3 convolution at stride 2, of type `type`, as cudnn_library.cc
// describes them. `result` is the type of the gradient of the weights.
void CheckOperations(int type, int result) {
  const cudnnBackendDescriptor_t convolution = Make(cudnn::kConvolution);
  const int compute = cudnn::kFloat;
  SetInts(convolution, cudnn::kConvolutionSpatialDimensions, {2});
  Set(convolution, cudnn::kConvolutionComputeType, cudnn::kTypeDataType, 1, &compute);
  Set(convolution, cudnn::kConvolutionMode, cudnn::kTypeConvolutionMode, 1,
      &cudnn::kCrossCorrelation);
  SetInts(convolution, cudnn::kConvolutionDilations, {1, 1});
  SetInts(convolution, cudnn::kConvolutionStrides, {2, 2});
  SetInts(convolution, cudnn::kConvolutionPrePaddings, {0, 0});
  SetInts(convolution, cudnn::kConvolutionPostPaddings, {1, 1});
  Check("convolution", cudnnBackendFinalize(convolution));
  struct Operation {
    const char* name;
    int type, alpha, beta, convolution, x, w, y;
  };
  const Operation operations[] = {
      {"forward", cudnn::kConvolutionForward, cudnn::kForwardAlpha, cudnn::kForwardBeta,
       cudnn::kForwardConvolution, cudnn::kForwardX, cudnn::kForwardW, cudnn::kForwardY},
      {"backward data", cudnn::kConvolutionBackwardData, cudnn::kBackwardDataAlpha,
       cudnn::kBackwardDataBeta, cudnn::kBackwardDataConvolution, cudnn::kBackwardDataDx,
       cudnn::kBackwardDataW, cudnn::kBackwardDataDy},
      {"backward filter", cudnn::kConvolutionBackwardFilter, cudnn::kBackwardFilterAlpha,
       cudnn::kBackwardFilterBeta, cudnn::kBackwardFilterConvolution, cudnn::kBackwardFilterX,
       cudnn::kBackwardFilterDw, cudnn::kBackwardFilterDy}};
  for (const Operation& of : operations) {
    const int filter = of.type == cudnn::kConvolutionBackwardFilter ? result : type;
    const cudnnBackendDescriptor_t operation = Make(of.type);
    const cudnnBackendDescriptor_t x = Tensor(1, type, 4, 24, 10, 8),
                                   w = Tensor(2, filter, 40, 24, 3, 3),
                                   y = Tensor(3, type, 4, 40, 5, 4);
    const float one = 1.0f, zero = 0.0f;
    Set(operation, of.alpha, cudnn::kTypeFloat, 1, &one);
    Set(operation, of.beta, cudnn::kTypeFloat, 1, &zero);
    Set(operation, of.convolution, cudnn::kTypeDescriptor, 1, &convolution);
    Set(operation, of.x, cudnn::kTypeDescriptor, 1, &x);
    Set(operation, of.w, cudnn::kTypeDescriptor, 1, &w);
    Set(operation, of.y, cudnn::kTypeDescriptor, 1, &y);
    Check(of.name, cudnnBackendFinalize(operation));
  }
}

}  // namespace

int main() {
  CheckOperations(cudnn::kFloat, cudnn::kFloat);
  CheckOperations(cudnn::kBfloat16, cudnn::kBfloat16);
  CheckOperations(cudnn::kBfloat16, cudnn::kFloat);
  std::printf("cuDNN %zu, cuBLASLt %zu: %d calls failed\n", cudnnGetVersion(), cublasLtGetVersion(),
              failures);
  return failures == 0 ? 0 : 1;
}
