#include "kernels/cuda/channel_sums.h"
#include "kernels/cuda/convolution_gradients.h"
#include "kernels/cuda/convolution_plan.h"
#include "kernels/cuda/input_gradient_epilogue.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pointwise_backward.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

using T = Bfloat16;

constexpr int kRows = 64;  // of one tile
constexpr int kThreads = kTileThreads;
constexpr int kWarps = kTileWarps;
// Squares of 16 x 16 weight gradients that a warp keeps, eight registers a thread each.
constexpr int kFewSquares = 6, kManySquares = 12;

PUSHPULL_HOST_DEVICE inline int Sixteens(int n) { return (n + 15) / 16 * 16; }

// A block's shared memory, in order; offsets in bytes. Lines of matrices are odd multiples of 16
// bytes long, so that eight of them meet different banks.
struct Layout {
  int in_c, out_c;
  int in_stride, out_stride;  // of lines of in_c and out_c numbers
  int gradient, value, staged, sums, coefficients, total;

  PUSHPULL_HOST_DEVICE Layout(int in_channels, int out_channels)
      : in_c(in_channels),
        out_c(out_channels),
        in_stride(Sixteens(in_c) + 8),
        out_stride(Sixteens(out_c) + 8) {
    constexpr int kNumber = static_cast<int>(sizeof(T)), kFloat = static_cast<int>(sizeof(float));
    gradient = Sixteens(in_c) * out_stride * kNumber;  // after the weights
    value = gradient + kRows * out_stride * kNumber;
    staged = value + kRows * in_stride * kNumber;
    sums = staged + kRows * kStagedStride * kFloat;
    coefficients = sums + kWarps * 2 * in_c * kFloat;
    total = coefficients + (2 * in_c + 3 * out_c + 3 * in_c) * kFloat;
  }
};

struct Arguments {
  int rows, in_c, out_c;
  int tiles_per_block;
  ValueSource<T> value;
  GradientSource<T> gradient;
  const float* weights;
  LazyView<T> x;
  InputGradientView<T> dx;
  float* norm_parts;    // [blocks][2][in_c]; null: x has no batch norm
  float* weight_parts;  // [blocks][in_c][out_c]
};

// Eight neighbours of each line at a time; lines and columns beyond the matrix become zeros. A
// thread's loads are issued together before the first is used.
template <typename Source>
__device__ __forceinline__ void FormTile(const Source& source, const float* coefficients,
                                         int first_row, int rows, int stride, T* tile) {
  constexpr int kTogether = 2;
  const int vectors = Sixteens(source.channels) / 8;
  for (int begin = threadIdx.x; begin < kRows * vectors; begin += kTogether * kThreads) {
    Raw8<T> first[kTogether] = {}, second[kTogether] = {};
    bool present[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int i = begin + j * kThreads, r = i / vectors, c = i % vectors * 8;
      present[j] = r < kRows && first_row + r < rows && c < source.channels;
      if (!present[j]) continue;
      const int64_t offset = static_cast<int64_t>(first_row + r) * source.channels + c;
      first[j] = LoadRaw8(source.first() + offset);
      if (source.second() != nullptr) second[j] = LoadRaw8(source.second() + offset);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int i = begin + j * kThreads, r = i / vectors, c = i % vectors * 8;
      if (r >= kRows) continue;
      float values[8] = {};
      if (present[j]) {
        float others[8];
        Unpack8(first[j], values);
        Unpack8(second[j], others);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          values[e] = source.Form(values[e], others[e], coefficients, c + e);
        }
      }
      Store8(values, tile + r * stride + c);
    }
  }
}

// weights[in_c][out_c] by row, with zeros up to the next sixteen.
__device__ __forceinline__ void LoadWeights(const Arguments& a, int stride, T* to) {
  const int vectors = Sixteens(a.out_c) / 8;
  for (int i = threadIdx.x; i < Sixteens(a.in_c) * vectors; i += kThreads) {
    const int k = i / vectors, n = i % vectors * 8;
    float values[8] = {};
    if (k < a.in_c && n < a.out_c) Load8(a.weights + static_cast<int64_t>(k) * a.out_c + n, values);
    Store8(values, to + k * stride + n);
  }
}

// staged[kRows][kStagedColumns] = gradient tile times transposed weights, input channels from
// first_column.
__device__ __forceinline__ void MultiplyByWeights(const Layout& layout, const T* gradient,
                                                  const T* weights, int first_column,
                                                  float* staged) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int low = lane % 8, middle = lane / 8 % 2 * 8, high = lane / 16 * 8;
  const int row = warp % 4 * 16, column = warp / 4 * 32;
  float sums[4][4] = {};
  // Groups end where the weights in shared memory do.
  const int pairs = min(2, max(0, (Sixteens(layout.in_c) - first_column - column) / 16));
  for (int n = 0; n < layout.out_c; n += 16) {
    unsigned rows[4];
    LoadMatrices(gradient + (row + low + middle) * layout.out_stride + n + high, rows);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      if (pair >= pairs) continue;
      const int k = first_column + column + 16 * pair;
      unsigned columns[4];
      LoadMatrices(weights + (k + low + high) * layout.out_stride + n + middle, columns);
      MultiplyAdd(rows, columns, sums[2 * pair]);
      MultiplyAdd(rows, columns + 2, sums[2 * pair + 1]);
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      staged[(row + lane / 4 + k / 2 * 8) * kStagedStride + column + 8 * j + lane % 4 * 2 + k % 2] =
          sums[j][k];
    }
  }
}

// The warp's squares of value^T times gradient, added to `squares`.
template <int kSquares>
__device__ __forceinline__ void AddWeightGradients(const Layout& layout, const T* value,
                                                   const T* gradient,
                                                   float squares[kSquares][2][4]) {
  const int lane = threadIdx.x % 32;
  const int low = lane % 8, middle = lane / 8 % 2 * 8, high = lane / 16 * 8;
  const int across = Sixteens(layout.out_c) / 16;
  const int count = Sixteens(layout.in_c) / 16 * across;
#pragma unroll
  for (int i = 0; i < kSquares; ++i) {
    const int square = threadIdx.x / 32 + i * kWarps;
    if (square >= count) continue;
    const int k = square / across * 16, n = square % across * 16;
#pragma unroll
    for (int row = 0; row < kRows; row += 16) {
      unsigned a[4], b[4];
      LoadMatricesTransposed(value + (row + low + high) * layout.in_stride + k + middle, a);
      LoadMatricesTransposed(gradient + (row + low + middle) * layout.out_stride + n + high, b);
      MultiplyAdd(a, b, squares[i][0]);
      MultiplyAdd(a, b + 2, squares[i][1]);
    }
  }
}

template <int kSquares>
__device__ __forceinline__ void StoreWeightGradients(const Layout& layout,
                                                     const float squares[kSquares][2][4],
                                                     float* out) {
  const int lane = threadIdx.x % 32;
  const int across = Sixteens(layout.out_c) / 16;
  const int count = Sixteens(layout.in_c) / 16 * across;
#pragma unroll
  for (int i = 0; i < kSquares; ++i) {
    const int square = threadIdx.x / 32 + i * kWarps;
    if (square >= count) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int k = square / across * 16 + lane / 4 + e / 2 * 8;
        const int n = square % across * 16 + 8 * half + lane % 4 * 2 + e % 2;
        if (k < layout.in_c && n < layout.out_c) {
          out[static_cast<int64_t>(k) * layout.out_c + n] = squares[i][half][e];
        }
      }
    }
  }
}

template <int kSquares>
__global__ void __launch_bounds__(kThreads, kSquares == kFewSquares ? 2 : 1)
    PointwiseBackwardKernel(Arguments a) {
  const Layout layout(a.in_c, a.out_c);
  unsigned char* const shared = SharedBytes();
  T* const weights = reinterpret_cast<T*>(shared);
  T* const gradient = reinterpret_cast<T*>(shared + layout.gradient);
  T* const value = reinterpret_cast<T*>(shared + layout.value);
  float* const staged = reinterpret_cast<float*>(shared + layout.staged);
  float* const sums = reinterpret_cast<float*>(shared + layout.sums);
  float* const value_coefficients = reinterpret_cast<float*>(shared + layout.coefficients);
  float* const gradient_coefficients = value_coefficients + 2 * a.in_c;
  float* const norm_coefficients = gradient_coefficients + 3 * a.out_c;
  a.value.FillCoefficients(value_coefficients);
  a.gradient.FillCoefficients(gradient_coefficients);
  InputGradientEpilogue<T>::FillCoefficients(a.x.norm, 0, a.in_c, a.in_c, norm_coefficients);
  LoadWeights(a, layout.out_stride, weights);
  for (int i = threadIdx.x; i < kWarps * 2 * a.in_c; i += kThreads) sums[i] = 0.0f;
  __syncthreads();

  InputGradientEpilogue<T> epilogue = {a.x,
                                       a.dx,
                                       a.in_c,
                                       0,
                                       norm_coefficients,
                                       norm_coefficients + a.in_c,
                                       norm_coefficients + 2 * a.in_c};
  float squares[kSquares][2][4] = {};
  const int first = blockIdx.x * a.tiles_per_block * kRows;
  const int end = min(first + a.tiles_per_block * kRows, a.rows);
  for (int row = first; row < end; row += kRows) {
    FormTile(a.gradient, gradient_coefficients, row, a.rows, layout.out_stride, gradient);
    FormTile(a.value, value_coefficients, row, a.rows, layout.in_stride, value);
    __syncthreads();
    AddWeightGradients<kSquares>(layout, value, gradient, squares);
    for (int column = 0; column < a.in_c; column += kStagedColumns) {
      MultiplyByWeights(layout, gradient, weights, column, staged);
      __syncthreads();
      FinishStaged<kRows>(staged, row, a.rows, column, a.in_c, epilogue, sums);
      __syncthreads();
    }
  }

  StoreWeightGradients<kSquares>(
      layout, squares, a.weight_parts + static_cast<int64_t>(blockIdx.x) * a.in_c * a.out_c);
  if (a.norm_parts == nullptr) return;
  for (int i = threadIdx.x; i < 2 * a.in_c; i += kThreads) {
    float total = 0.0f;
    for (int warp = 0; warp < kWarps; ++warp) total += sums[warp * 2 * a.in_c + i];
    a.norm_parts[static_cast<int64_t>(blockIdx.x) * 2 * a.in_c + i] = total;
  }
}

int CountSquares(const ConvolutionShape& shape) {
  return Sixteens(static_cast<int>(shape.in.c)) / 16 *
         (Sixteens(static_cast<int>(shape.out_channels)) / 16);
}

struct Plan {
  int tiles_per_block, blocks;
};

// As many blocks as run at once.
Plan PlanBlocks(const Queue& queue, const ConvolutionShape& shape) {
  const Layout layout(static_cast<int>(shape.in.c), static_cast<int>(shape.out_channels));
  const bool few = CountSquares(shape) <= kFewSquares * kWarps;
  const int per_multiprocessor = few && layout.total <= kResidentBytes ? 2 : 1;
  const int tiles = CeilDivide(shape.in.rows(), kRows);
  const int tiles_per_block =
      CeilDivide(tiles, std::min(tiles, queue.multiprocessors * per_multiprocessor));
  return {tiles_per_block, CeilDivide(tiles, tiles_per_block)};
}

}  // namespace

bool PointwiseBackwardPays(const Queue& queue, const ConvolutionShape& shape) {
  if (ChooseAccess(shape, static_cast<int>(shape.in.c)) != Access::kPointwise ||
      ChooseAccess(shape, static_cast<int>(shape.out_channels)) != Access::kPointwise) {
    return false;
  }
  const Layout layout(static_cast<int>(shape.in.c), static_cast<int>(shape.out_channels));
  if (CountSquares(shape) > kManySquares * kWarps || layout.total > queue.shared_bytes_limit) {
    return false;
  }
  // The partial weight gradients are written and read; the separate kernels read everything twice.
  const double partial = 2.0 * sizeof(float) * static_cast<double>(shape.dense_weights()) *
                         PlanBlocks(queue, shape).blocks;
  const double saved = sizeof(T) * static_cast<double>(shape.in.rows()) *
                       static_cast<double>(shape.in.c + 2 * shape.out_channels);
  return partial < 0.5 * saved;
}

int64_t PointwiseBackwardWorkspaceBytes(const Queue& queue, const ConvolutionShape& shape) {
  const Plan plan = PlanBlocks(queue, shape);
  return plan.blocks * shape.dense_weights() * static_cast<int64_t>(sizeof(float)) +
         GradientPartBytes(plan.blocks, shape.in.c);
}

void PointwiseBackward(Queue* queue, const ConvolutionShape& shape, const Lazy<Bfloat16>& x,
                       const float* weights, const OutputGradient<Bfloat16>& dy, float* dweights,
                       const InputGradient<Bfloat16>& dx, void* workspace) {
  const Plan plan = PlanBlocks(*queue, shape);
  const int in_c = static_cast<int>(shape.in.c), out_c = static_cast<int>(shape.out_channels);
  float* const weight_parts = static_cast<float*>(workspace);
  float* const norm_parts = weight_parts + plan.blocks * shape.dense_weights();
  const Arguments arguments = {static_cast<int>(shape.in.rows()),
                               in_c,
                               out_c,
                               plan.tiles_per_block,
                               {ValueView(x), in_c},
                               {ViewOf(dy, shape.in.rows()), out_c},
                               weights,
                               ViewOf(x),
                               ViewOf(dx),
                               x.batch_norm != nullptr ? norm_parts : nullptr,
                               weight_parts};
  const LaunchShape launch = {dim3(plan.blocks), dim3(kThreads),
                              static_cast<size_t>(Layout(in_c, out_c).total)};
  if (CountSquares(shape) <= kFewSquares * kWarps) {
    Launch(queue, "pointwise_backward", launch, PointwiseBackwardKernel<kFewSquares>, arguments);
  } else {
    Launch(queue, "pointwise_backward", launch, PointwiseBackwardKernel<kManySquares>, arguments);
  }
  CombineParts(queue, weight_parts, plan.blocks, shape.dense_weights(), dweights);
  if (x.batch_norm == nullptr) return;
  CombineNormGradients(queue, norm_parts, plan.blocks, in_c, *x.batch_norm, dx.dbeta, dx.dgamma);
}

}  // namespace pushpull::PUSHPULL_CUDA
