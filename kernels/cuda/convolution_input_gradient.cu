// The gradient of a convolution's input: dy times the transposed weights, then taken back through
// the activation of the input, with the sums that its batch norm needs.
// Tested by tests/kernels/cuda/cuda_convolution_test.cc.
#include "kernels/cuda/channel_sums.h"
#include "kernels/cuda/convolution_gradients.h"
#include "kernels/cuda/convolution_plan.h"
#include "kernels/cuda/input_gradient_epilogue.cuh"
#include "kernels/cuda/launch.cuh"

namespace pushpull::PUSHPULL_CUDA {
namespace {

template <typename T>
struct InputGradientArguments {
  ConvolutionGeometry geometry;
  ProductPlan plan;
  GradientSource<T> source;
  PanelWeights weights;
  LazyView<T> x;
  InputGradientView<T> dx;
  float* parts;  // null: x has no batch norm
  // Device memory for the coefficients and the weights, if they are not in shared memory.
  float* coefficients;
  T* packed;
};

// dx = dy * transposed weights as an implicit GEMM. The structure is that of
// ConvolutionForwardKernel (convolution_forward.cu has a drawing), with these differences:
//
//   rows        input pixels; a row holds dy of the output pixels that read it, per tap
//   reduction   (tap, output channel)
//   columns     input channels; a block owns kColumns of them (blockIdx.y)
//   panel       [kColumns][reduction], the order in which the weights are in memory, so that they
//               are not transposed on the way; the matrix unit reads them by columns
//   on load     dy is formed from dz and raw (batch norm backward) if the convolution is pointwise;
//               otherwise it is plain numbers (convolution_operands.h)
//   epilogue    adds dx.add, applies the slope of the activation at x.raw, stores dz, and sums it
//               for the batch norm of x
//
// At stride 2 most taps of an input pixel have no output pixel; their zeros are multiplied all the
// same. dy is read for each group of columns (for each tap as well, but then mostly from the
// caches), x.raw and dx.add once, and dx.dz is written. NOTES.md has the bounds.
template <typename T, int kColumns, Access kAccess>
__global__ void __launch_bounds__(kTileThreads,
                                  BlocksPerMultiprocessor(Pass::kInputGradient, kColumns, kAccess))
    ConvolutionInputGradientKernel(InputGradientArguments<T> a) {
  using Memory = ProductMemory<T, kColumns, MatrixLayout::kByColumn, kRowTiles<T, kAccess>>;
  unsigned char* const shared = SharedBytes();
  const int reduction = a.geometry.Reduction(a.source.channels), columns = a.geometry.in_c;
  const int first_column = blockIdx.y * kColumns;
  T* const panel_memory = reinterpret_cast<T*>(shared + Memory::kTilesBytes + a.plan.ring_bytes);
  float* const sums = reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(panel_memory) +
                                               Memory::PanelBytes(reduction, a.plan.resident));
  float* const scales = sums + Memory::kSumsBytes / sizeof(float);
  float* const shared_coefficients = scales + 3 * kColumns;
  using Rows = RowLoader<T, kAccess, GradientSource<T>, BackwardTaps>;
  if (Rows::kForms && a.plan.shares_coefficients) a.source.FillCoefficients(shared_coefficients);
  const float* const coefficients =
      a.plan.shares_coefficients ? shared_coefficients : a.coefficients;
  InputGradientEpilogue<T>::FillCoefficients(
      a.x.norm, first_column, min(kColumns, columns - first_column), kColumns, scales);

  Rows rows(a.geometry, a.source, coefficients, a.plan.shares_coefficients);
  Panel<T, kColumns, MatrixLayout::kByColumn> panel(a.weights, a.packed, blockIdx.y,
                                                    a.plan.resident, panel_memory);
  InputGradientEpilogue<T> epilogue = {
      a.x, a.dx, columns, first_column, scales, scales + kColumns, scales + 2 * kColumns};
  MultiplyTiles<T, kColumns>(a.plan, rows, panel, epilogue, shared, sums);

  const int n = threadIdx.x;
  if (a.parts == nullptr || n >= kColumns || first_column + n >= columns) return;
  float* const part = a.parts + static_cast<int64_t>(blockIdx.x) * 2 * columns + first_column + n;
  part[0] = AddWarps<kColumns>(sums, 0, n);
  part[columns] = AddWarps<kColumns>(sums, 1, n);
}

template <typename T, int kColumns, Access kAccess>
void LaunchInputGradient(Queue* queue, InputGradientArguments<T> arguments) {
  using Memory = ProductMemory<T, kColumns, MatrixLayout::kByColumn, kRowTiles<T, kAccess>>;
  const int channels = arguments.source.channels;
  using Rows = RowLoader<T, kAccess, GradientSource<T>, BackwardTaps>;
  const int coefficients = kAccess == Access::kPointwise
                               ? GradientSource<T>::kCoefficients * PaddedChannels(channels)
                               : 0;
  const int shared =
      PlanShared<Memory>(*queue, arguments.geometry.Reduction(channels),
                         Rows::RingVectors(arguments.source), coefficients, &arguments.plan);
  if (!arguments.plan.shares_coefficients) {
    Launch(queue, "convolution_coefficients", {dim3(1), dim3(kTileThreads)},
           CoefficientsKernel<GradientSource<T>>, arguments.source, arguments.coefficients);
  }
  PackPanel<T, kColumns, MatrixLayout::kByColumn>(queue, arguments.plan, arguments.weights,
                                                  arguments.packed);
  const dim3 grid(arguments.plan.blocks, arguments.plan.column_tiles);
  Launch(queue, "convolution_input_gradient",
         {grid, dim3(kTileThreads), static_cast<size_t>(shared)},
         ConvolutionInputGradientKernel<T, kColumns, kAccess>, arguments);
}

void Dispatch(Queue* queue, int tile_columns, Access access,
              const InputGradientArguments<Bfloat16>& a) {
  if (access == Access::kPointwise) {
    if (tile_columns == 32) return LaunchInputGradient<Bfloat16, 32, Access::kPointwise>(queue, a);
    return LaunchInputGradient<Bfloat16, 64, Access::kPointwise>(queue, a);
  }
  if (tile_columns == 32) return LaunchInputGradient<Bfloat16, 32, Access::kTaps>(queue, a);
  if (tile_columns == 64) return LaunchInputGradient<Bfloat16, 64, Access::kTaps>(queue, a);
  LaunchInputGradient<Bfloat16, 128, Access::kTaps>(queue, a);
}

void Dispatch(Queue* queue, int, Access access, const InputGradientArguments<float>& a) {
  if (access == Access::kPointwise) {
    return LaunchInputGradient<float, 64, Access::kPointwise>(queue, a);
  }
  LaunchInputGradient<float, 64, Access::kTaps>(queue, a);
}

}  // namespace

template <typename T>
NormGradientSums ConvolutionInputGradient(Queue* queue, const ConvolutionShape& shape,
                                          const Lazy<T>& x, const float* weights,
                                          const PlainGradientOf<T>& dy, const InputGradient<T>& dx,
                                          float* workspace) {
  const ConvolutionGeometry geometry(shape);
  float* const coefficients = workspace;
  T* const packed = reinterpret_cast<T*>(workspace + CoefficientBytes(shape) / sizeof(float));
  float* const parts = reinterpret_cast<float*>(packed + PackedBytes<T>(shape) / sizeof(T));
  const Access access = ChooseAccess(shape);
  const int tile_columns = TileColumns<T>(*queue, access, geometry.in_c);
  const InputGradientArguments<T> arguments = {
      geometry,
      PlanProduct(*queue, Pass::kInputGradient, geometry.in_rows, geometry.in_c, tile_columns,
                  access),
      {ViewOf(dy.gradient, geometry.out_rows), dy.channels},
      {weights, geometry.Reduction(geometry.out_c), geometry.in_c, geometry.out_c,
       Divisor(PaddedChannels(geometry.out_c))},
      ViewOf(x),
      ViewOf(dx),
      x.batch_norm != nullptr ? parts : nullptr,
      coefficients,
      packed};
  Dispatch(queue, tile_columns, access, arguments);
  if (x.batch_norm == nullptr) return {};
  return {parts, arguments.plan.blocks, geometry.in_c, x.batch_norm, dx.dbeta, dx.dgamma};
}

template NormGradientSums ConvolutionInputGradient<float>(Queue*, const ConvolutionShape&,
                                                          const Lazy<float>&, const float*,
                                                          const PlainGradientOf<float>&,
                                                          const InputGradient<float>&, float*);
template NormGradientSums ConvolutionInputGradient<Bfloat16>(Queue*, const ConvolutionShape&,
                                                             const Lazy<Bfloat16>&, const float*,
                                                             const PlainGradientOf<Bfloat16>&,
                                                             const InputGradient<Bfloat16>&,
                                                             float*);

}  // namespace pushpull::PUSHPULL_CUDA
