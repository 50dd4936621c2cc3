// Tested by tests/kernels/cuda/cuda_convolution_test.cc.
#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/channel_sums.h"
#include "kernels/cuda/convolution_gradients.h"
#include "kernels/cuda/convolution_plan.h"
#include "kernels/cuda/input_gradient_epilogue.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pointwise_backward.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

using T = Bfloat16;

constexpr int kRows = 128;  // the pixels of one tile
constexpr int kThreads = kTileThreads;
constexpr int kWarps = kTileWarps;
// The number of squares of 16 x 16 weight gradients that a warp can keep. A square takes eight
// registers per thread.
constexpr int kFewSquares = 6, kManySquares = 12;

PUSHPULL_HOST_DEVICE inline int Sixteens(int n) { return (n + 15) / 16 * 16; }

// The layout of a block's shared memory: the weights, then the parts below in this order, at these
// offsets in bytes. Lines of matrices are odd multiples of 16 bytes long, so that the 16-byte rows
// of eight neighbouring lines, which one ldmatrix reads, meet different banks.
struct Layout {
  int in_c, out_c;
  int in_stride, out_stride;  // of lines of in_c and out_c numbers, in numbers
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
    sums = staged + kWarps * kWarpStagedBytes;
    coefficients = sums + kWarps * 2 * in_c * kFloat;
    total = coefficients + (2 * in_c + 3 * out_c + 3 * in_c) * kFloat;
  }
};

// The squares of 16 x 16 weight gradients. From one square of a warp to its next it is kWarps
// squares, which are step_down rows and step_right columns.
struct Squares {
  int height, width, step_down, step_right;
  Divisor by_width;

  Squares(int in_c, int out_c)
      : height(Sixteens(in_c) / 16),
        width(Sixteens(out_c) / 16),
        step_down(kWarps / width),
        step_right(kWarps % width),
        by_width(width) {}
};

struct Arguments {
  int rows, in_c, out_c;
  Squares squares;
  int tiles_per_block;
  ValueSource<T> value;
  GradientSource<T> gradient;
  const float* weights;
  LazyView<T> x;
  InputGradientView<T> dx;
  float* norm_parts;    // [blocks][2][in_c]; null: x has no batch norm
  float* weight_parts;  // [blocks][in_c][out_c]
};

// Says which part of a tile a thread forms: the same eight columns in every `rows_at_once`-th row
// from `row` on.
struct FormPlace {
  int row, column, rows_at_once;

  __device__ __forceinline__ explicit FormPlace(int channels) {
    const int vectors = channels / 8;
    rows_at_once = kThreads / vectors;
    row = static_cast<int>(threadIdx.x) / vectors;
    column = static_cast<int>(threadIdx.x) % vectors * 8;
    if (row >= rows_at_once) row = kRows;  // a thread without work
  }
};

// Forms tile[kRows][stride] from rows of the source. Rows beyond the matrix become zeros; columns
// beyond it stay as they are. A thread issues several loads before it uses the first, so that their
// latencies overlap.
template <typename Source>
__device__ __forceinline__ void FormTile(const Source& source, const FormPlace& place,
                                         const float* coefficients, int first_row, int rows,
                                         int stride, T* tile) {
  constexpr int kTogether = 4;
  if (place.row >= kRows) return;
  float k[Source::kCoefficients][8];
#pragma unroll
  for (int q = 0; q < Source::kCoefficients; ++q) {
    Load8(coefficients + q * source.channels + place.column, k[q]);
  }
  const int step = kTogether * place.rows_at_once;
  for (int begin = place.row; begin < kRows; begin += step) {
    Raw8<T> first[kTogether] = {}, second[kTogether] = {};
    bool present[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int r = begin + j * place.rows_at_once;
      present[j] = r < kRows && first_row + r < rows;
      if (!present[j]) continue;
      const int64_t offset = static_cast<int64_t>(first_row + r) * source.channels + place.column;
      first[j] = LoadRaw8(source.first() + offset);
      if (source.second() != nullptr) second[j] = LoadRaw8(source.second() + offset);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int r = begin + j * place.rows_at_once;
      if (r >= kRows) continue;
      float values[8] = {};
      if (present[j]) {
        source.Form8(first[j], second[j], k, values);
      }
      Store8(values, tile + r * stride + place.column);
    }
  }
}

// Asks for rows of the source from first_row on, at most kRows, to come to the L2 cache.
template <typename Source>
__device__ __forceinline__ void PrefetchTile(const Source& source, int first_row, int end) {
  const int64_t offset = static_cast<int64_t>(first_row) * source.channels;
  const int64_t bytes =
      static_cast<int64_t>(min(kRows, end - first_row)) * source.channels * sizeof(T);
  PrefetchBytes(source.first() + offset, bytes);
  if (source.second() != nullptr) PrefetchBytes(source.second() + offset, bytes);
}

// Writes zeros to the columns between the channels and the next multiple of 16.
__device__ __forceinline__ void ClearPadding(int channels, int stride, T* tile) {
  if (channels % 16 == 0 || threadIdx.x >= kRows) return;
  const float zeros[8] = {};
  Store8(zeros, tile + threadIdx.x * stride + channels);
}

// Copies weights[in_c][out_c] to shared memory as T, with zeros up to multiples of 16.
__device__ __forceinline__ void LoadWeights(const Arguments& a, int stride, T* to) {
  const int vectors = Sixteens(a.out_c) / 8;
  for (int i = threadIdx.x; i < Sixteens(a.in_c) * vectors; i += kThreads) {
    const int k = i / vectors, n = i % vectors * 8;
    float values[8] = {};
    if (k < a.in_c && n < a.out_c) Load8(a.weights + static_cast<int64_t>(k) * a.out_c + n, values);
    Store8(values, to + k * stride + n);
  }
}

// staged[kStagedRows][kStagedColumns] = the warp's 16 rows of the gradient tile * transposed
// weights, for input channels from first_column on. The sums take 16 registers per thread.
__device__ __forceinline__ void MultiplyByWeights(const Layout& layout, const T* gradient,
                                                  const T* weights, int first_column,
                                                  float* staged) {
  static_assert(kRows == kStagedRows * kWarps && kStagedRows == 16);
  constexpr int kPairs = kStagedColumns / 16;
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
  const int low = lane % 8, middle = lane / 8 % 2 * 8, high = lane / 16 * 8;
  float sums[2 * kPairs][4] = {};
  // The last group of columns may be shorter; the weights in shared memory end there.
  const int pairs = min(kPairs, (Sixteens(layout.in_c) - first_column) / 16);
  for (int n = 0; n < layout.out_c; n += 16) {
    unsigned rows[4];
    LoadMatrices(gradient + (row + low + middle) * layout.out_stride + n + high, rows);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      if (pair >= pairs) continue;
      const int k = first_column + 16 * pair;
      unsigned columns[4];
      LoadMatrices(weights + (k + low + high) * layout.out_stride + n + middle, columns);
      MultiplyAdd(rows, columns, sums[2 * pair]);
      MultiplyAdd(rows, columns + 2, sums[2 * pair + 1]);
    }
  }
#pragma unroll
  for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      float* const to = staged + (lane / 4 + k / 2 * 8) * kStagedStride + 8 * j + lane % 4 * 2;
      *reinterpret_cast<float2*>(to) = make_float2(sums[j][k], sums[j][k + 1]);
    }
  }
}

// The place of a warp's square among the squares of 16 x 16 weight gradients, which are dealt out
// to the eight warps by turns.
struct SquarePlace {
  const Squares& squares;
  int down, right;

  __device__ __forceinline__ explicit SquarePlace(const Squares& all) : squares(all) {
    down = squares.by_width.Quotient(static_cast<int>(threadIdx.x / 32), &right);
  }
  __device__ __forceinline__ bool exists() const { return down < squares.height; }
  __device__ __forceinline__ void Advance() {
    down += squares.step_down;
    right += squares.step_right;
    if (right < squares.width) return;
    right -= squares.width;
    ++down;
  }
};

// Adds transposed value tile * gradient tile to the warp's squares of weight gradients.
template <int kSquares>
__device__ __forceinline__ void AddWeightGradients(const Layout& layout, const Squares& places,
                                                   const T* value, const T* gradient,
                                                   float squares[kSquares][2][4]) {
  const int lane = threadIdx.x % 32;
  const int low = lane % 8, middle = lane / 8 % 2 * 8, high = lane / 16 * 8;
  SquarePlace place(places);
#pragma unroll
  for (int i = 0; i < kSquares; ++i, place.Advance()) {
    if (!place.exists()) continue;
    const int k = place.down * 16, n = place.right * 16;
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
__device__ __forceinline__ void StoreWeightGradients(const Layout& layout, const Squares& places,
                                                     const float squares[kSquares][2][4],
                                                     float* out) {
  const int lane = threadIdx.x % 32;
  SquarePlace place(places);
#pragma unroll
  for (int i = 0; i < kSquares; ++i, place.Advance()) {
    if (!place.exists()) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int k = place.down * 16 + lane / 4 + e / 2 * 8;
        const int n = place.right * 16 + 8 * half + lane % 4 * 2 + e % 2;
        if (k < layout.in_c && n < layout.out_c) {
          out[static_cast<int64_t>(k) * layout.out_c + n] = squares[i][half][e];
        }
      }
    }
  }
}

// Both gradients of a pointwise convolution in one pass over the pixels. A block of 256 threads
// goes through tiles of 128 pixels. For each tile it forms dy and the value of x in shared memory
// and uses them for two products on the tensor cores:
//
//    dy tile [128][out_c]  x  weights^T [out_c][in_c]   ->  dx, 32 columns at a time: staged in
//                                                          shared memory, finished and stored
//    value^T [in_c][128]  x  dy tile [128][out_c]       ->  added to dw [in_c][out_c]
//
// dw stays in registers for all tiles of the block: it is cut into squares of 16 x 16, at most 48
// (kFewSquares) or 96 (kManySquares) over the eight warps. It is written once as a partial sum,
// which CombineGradients adds. Shared memory holds the weights for all tiles, both tiles, the
// staged sums, the batch norm sums and the coefficients (Layout).
//
// dz, raw and x are read from device memory once, which is the point of this kernel; the epilogue
// reads x.raw a second time, but soon enough for a cache. Its weakness: the loads of a tile are
// issued only after the products of the one before, so their latency shows twice per tile unless
// another block on the multiprocessor covers it, and two blocks fit only with few squares. The next
// tile is asked for early, so that it is the latency of the L2 cache. kCase says whether there is a
// gradient to add.
template <int kSquares, EpilogueCase kCase>
__global__ void __launch_bounds__(kThreads, kSquares == kFewSquares ? 2 : 1)
    PointwiseBackwardKernel(Arguments a) {
  const Layout layout(a.in_c, a.out_c);
  unsigned char* const shared = SharedBytes();
  T* const weights = reinterpret_cast<T*>(shared);
  T* const gradient = reinterpret_cast<T*>(shared + layout.gradient);
  T* const value = reinterpret_cast<T*>(shared + layout.value);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float* const staged = reinterpret_cast<float*>(shared + layout.staged + warp * kWarpStagedBytes);
  float* const sums = reinterpret_cast<float*>(shared + layout.sums);
  float* const value_coefficients = reinterpret_cast<float*>(shared + layout.coefficients);
  float* const gradient_coefficients = value_coefficients + 2 * a.in_c;
  float* const norm_coefficients = gradient_coefficients + 3 * a.out_c;
  a.value.FillCoefficients(value_coefficients);
  a.gradient.FillCoefficients(gradient_coefficients);
  InputGradientEpilogue<T>::FillCoefficients(a.x.norm, 0, a.in_c, a.in_c, norm_coefficients);
  LoadWeights(a, layout.out_stride, weights);
  ClearPadding(a.out_c, layout.out_stride, gradient);
  ClearPadding(a.in_c, layout.in_stride, value);
  for (int i = threadIdx.x; i < kWarps * 2 * a.in_c; i += kThreads) sums[i] = 0.0f;
  __syncthreads();

  const FormPlace gradient_place(a.out_c), value_place(a.in_c);
  const InputGradientEpilogue<T> epilogue = {a.x,
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
    FormTile(a.gradient, gradient_place, gradient_coefficients, row, a.rows, layout.out_stride,
             gradient);
    FormTile(a.value, value_place, value_coefficients, row, a.rows, layout.in_stride, value);
    PrefetchTile(a.gradient, row + kRows, end);
    PrefetchTile(a.value, row + kRows, end);
    __syncthreads();
    AddWeightGradients<kSquares>(layout, a.squares, value, gradient, squares);
    for (int column = 0; column < a.in_c; column += kStagedColumns) {
      __syncwarp();  // the warp has read what it staged before
      MultiplyByWeights(layout, gradient, weights, column, staged);
      __syncwarp();
      ColumnSums column_sums;
      const int own = column + static_cast<int>(threadIdx.x) % (kStagedColumns / 8) * 8;
      if (own < a.in_c) {
        FinishStaged<kCase>(staged, row + warp * kStagedRows, a.rows, own, epilogue.Load(own),
                            epilogue, &column_sums);
      }
      __syncwarp();
      AddColumnSums(column_sums, column, a.in_c, sums);
    }
    __syncthreads();  // both tiles have been read
  }

  StoreWeightGradients<kSquares>(
      layout, a.squares, squares,
      a.weight_parts + static_cast<int64_t>(blockIdx.x) * a.in_c * a.out_c);
  if (a.norm_parts == nullptr) return;
  for (int i = threadIdx.x; i < 2 * a.in_c; i += kThreads) {
    float total = 0.0f;
    for (int w = 0; w < kWarps; ++w) total += sums[w * 2 * a.in_c + i];
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

// Chooses as many blocks as can run at once, since each block writes a whole matrix of partial
// sums.
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
  if (ChooseAccess(shape) != Access::kPointwise || shape.in.c % 8 != 0 ||
      shape.out_channels % 8 != 0) {
    return false;
  }
  const Layout layout(static_cast<int>(shape.in.c), static_cast<int>(shape.out_channels));
  if (CountSquares(shape) > kManySquares * kWarps || layout.total > queue.shared_bytes_limit) {
    return false;
  }
  // This kernel costs writing and reading the partial weight gradients; it saves that the separate
  // kernels read x, dz and raw a second time. The saving must be at least twice the cost.
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
                               Squares(in_c, out_c),
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
  constexpr EpilogueCase kPlain = EpilogueCase::kVectors, kAdds = EpilogueCase::kVectorsMore;
  const bool few = CountSquares(shape) <= kFewSquares * kWarps, adds = dx.add != nullptr;
  auto* const kernel = few    ? adds ? PointwiseBackwardKernel<kFewSquares, kAdds>
                                     : PointwiseBackwardKernel<kFewSquares, kPlain>
                          : adds ? PointwiseBackwardKernel<kManySquares, kAdds>
                              : PointwiseBackwardKernel<kManySquares, kPlain>;
  Launch(queue, "pointwise_backward", launch, kernel, arguments);
  GradientSums sums;
  if (x.batch_norm != nullptr) {
    sums.norm = {norm_parts, plan.blocks, in_c, x.batch_norm, dx.dbeta, dx.dgamma};
  }
  sums.weights = {weight_parts, plan.blocks, shape.dense_weights(), dweights};
  CombineGradients(queue, sums);
}

}  // namespace pushpull::PUSHPULL_CUDA
