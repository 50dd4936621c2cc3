// Tested by tests/kernels/cuda/depthwise_test.cc.
// Tested by tests/kernels/cuda/cuda_convolution_test.cc.
#include "kernels/cuda/depthwise.h"
#include "kernels/cuda/depthwise_tile.cuh"
#include "kernels/cuda/statistics_sums.cuh"

namespace pushpull::PUSHPULL_CUDA {
namespace depthwise {
namespace {

// The sums of distances and squared distances of one channel's values from a pivot, the first of
// them, so that a large mean costs no precision.
struct Moments {
  float pivot = 0.0f, sum = 0.0f, squares = 0.0f;

  __device__ __forceinline__ void Add(float value) {
    const float distance = value - pivot;
    sum += distance;
    squares = fmaf(distance, distance, squares);
  }
  // Writes count, mean and the sum of squared distances from the mean to sums[3][kSlab], which is
  // the row of one slot.
  __device__ __forceinline__ void Put(int count, int channel, float* sums) const {
    const float mean = count > 0 ? sum / static_cast<float>(count) : 0.0f;
    sums[channel] = static_cast<float>(count);
    sums[kSlab + channel] = pivot + mean;
    sums[2 * kSlab + channel] = fmaxf(fmaf(-mean, sum, squares), 0.0f);
  }
};

// Combines sums[slots][3][kSlab] over the slots, in order (Chan, Golub and LeVeque), and writes the
// block's part.
__device__ __forceinline__ void WritePart(const float* sums, int slots, int slabs,
                                          const StatisticsSums& statistics) {
  const int thread = threadIdx.x, slab = blockIdx.x % slabs, part = blockIdx.x / slabs;
  const int channels = statistics.channels, channel = slab * kSlab + thread;
  if (thread >= kSlab || channel >= channels) return;
  // Means are kept as distances from that of the first slot, so that a large mean costs no
  // precision.
  const float base = sums[kSlab + thread];
  float count = 0.0f, mean = 0.0f, squares = 0.0f;
  for (int s = 0; s < slots; ++s) {
    const float* const other = sums + s * 3 * kSlab + thread;
    if (other[0] == 0.0f) continue;
    const float distance = other[kSlab] - base - mean;
    const float share = other[0] / (count + other[0]);
    mean = fmaf(distance, share, mean);
    squares += fmaf(distance * distance, count * share, other[2 * kSlab]);
    count += other[0];
  }
  float* const to = statistics.parts + static_cast<int64_t>(part) * 3 * channels + channel;
  to[0] = count;
  to[channels] = base + mean;
  to[2 * channels] = squares;
}

// A stager (depthwise_tile.cuh) that puts activated input into tile[pixels][kSlab].
template <typename T>
class ValueStager {
 public:
  using Loaded = Raw8<T>;

  // `coefficients` is [2][kSlab]: scales and shifts.
  __device__ __forceinline__ ValueStager(const LazyView<T>& x, const float* coefficients,
                                         float* tile)
      : raw_(x.raw), bounds_(x.bounds) {
    const int first = threadIdx.x % 4 * 8;
    tile_ = tile + first;
    Load8(coefficients + first, scale_);
    Load8(coefficients + kSlab + first, shift_);
  }
  __device__ __forceinline__ Loaded Load(int64_t place) const { return LoadRaw8(raw_ + place); }
  __device__ __forceinline__ void Put(int pixel, const Loaded& loaded) const {
    float values[8];
    Unpack8(loaded, values);
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = Clamp(fmaf(scale_[i], values[i], shift_[i]), bounds_);
    Store8(values, tile_ + pixel * kSlab);
  }
  __device__ __forceinline__ void PutZero(int pixel) const {
    const float zeros[8] = {};
    Store8(zeros, tile_ + pixel * kSlab);
  }

 private:
  const T* const raw_;
  const Bounds bounds_;
  float* tile_;
  float scale_[8], shift_[8];
};

// One row of the activated input under the two outputs of a step, for two channels.
template <int kStride>
struct InputRow {
  float2 values[kStride + 3];

  __device__ __forceinline__ explicit InputRow(const float* from) {
#pragma unroll
    for (int i = 0; i < kStride + 3; ++i) values[i] = Load2(from + i * kSlab);
  }
  // Adds the row times one row of the weights to both outputs.
  __device__ __forceinline__ void AddTo(const float2 weights[3], float2 output[2]) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        output[j] = Fma2(weights[k], values[j * kStride + k], output[j]);
      }
    }
  }
};

// Stores the outputs of a thread and adds them, as stored, to their moments.
template <typename T>
struct OutputSink {
  bool moments_wanted;
  int count = 0;
  Moments moments[2] = {};

  // Puts one or two neighbouring outputs, whose addresses are `to` and `beside`.
  __device__ __forceinline__ void Put(const float2 values[2], bool both, T* to, T* beside) {
    const float2 stored = Store2(values[0], to);
    if (moments_wanted) {
      if (count == 0) {
        moments[0].pivot = stored.x;
        moments[1].pivot = stored.y;
      }
      Add(stored);
    }
    if (!both) return;
    const float2 second = Store2(values[1], beside);
    if (moments_wanted) Add(second);
  }

 private:
  __device__ __forceinline__ void Add(float2 stored) {
    moments[0].Add(stored.x);
    moments[1].Add(stored.y);
    ++count;
  }
};

// Walks down the columns of a staged tile. `tile`, `taps` and `y` point to the thread's two
// channels.
template <typename T, int kStride>
__device__ __forceinline__ void WalkOutputs(const Geometry& g, const Plan& plan,
                                            const Origin& origin, const float* tile,
                                            const float* taps, T* y, OutputSink<T>* sink) {
  float2 weights[3][3];
  LoadTaps(taps, weights);
  const int line = plan.values.columns * kSlab;
  const int64_t out_line = static_cast<int64_t>(g.out_width) * g.channels;
#pragma unroll 1
  for (int index = threadIdx.x / kPairs; index < plan.items; index += kSlots) {
    const Item item = ItemOf(plan, index);
    const int image = origin.image + item.image;
    const int column = (origin.column + item.column) * 2;
    if (image >= g.images || column >= g.out_width) continue;
    const bool both = column + 1 < g.out_width;
    const int end = min(item.end, g.out_height - origin.row);
    const float* from = tile + (item.image * plan.values.rows + item.row * kStride) * line +
                        item.column * 2 * kStride * kSlab;
    const int place = (image * g.out_height + origin.row + item.row) * g.out_width + column;
    T* to = y + static_cast<int64_t>(place) * g.channels;
    T* beside = to + g.channels;
    // A row of input belongs to up to three rows of output. Rows of output that have begun but are
    // not complete wait in registers, so each input row is read from shared memory only once. They
    // are a ring, and the loop is unrolled by its length, so that no row is moved.
    constexpr int kBegun = kStride == 1 ? 3 : 2;
    float2 sums[kBegun][2] = {};
    {
      const InputRow<kStride> first(from);
      first.AddTo(weights[0], sums[0]);
    }
    if constexpr (kStride == 1) {
      from += line;
      const InputRow<kStride> second(from);
      second.AddTo(weights[1], sums[0]);
      second.AddTo(weights[0], sums[1]);
    }
#pragma unroll 1
    for (int first = item.row; first < end; first += kBegun) {
#pragma unroll
      for (int phase = 0; phase < kBegun; ++phase) {
        if (first + phase >= end) break;
        float2* const complete = sums[phase];
        float2* const begun = sums[(phase + kBegun - 1) % kBegun];
        if constexpr (kStride == 2) {
          from += line;
          const InputRow<kStride> middle(from);
          middle.AddTo(weights[1], complete);
        }
        from += line;
        const InputRow<kStride> last(from);
        last.AddTo(weights[2], complete);
        if constexpr (kStride == 1) last.AddTo(weights[1], sums[(phase + 1) % kBegun]);
        begun[0] = begun[1] = make_float2(0.0f, 0.0f);
        last.AddTo(weights[0], begun);
        sink->Put(complete, both, to, beside);
        to += out_line;
        beside += out_line;
      }
    }
  }
}

// A 3x3 depthwise convolution with statistics. A block of 256 threads owns 32 channels and loops
// over tiles. For each tile it stages the activated input, including the border that the taps
// reach, in shared memory as float [pixels][32]; with coefficients and weights it takes as much as
// each of three blocks may have. Then each of the 16 slots walks down columns of the tile, two
// outputs per step; its 16 threads own two channels each, so a half-warp reads 128 contiguous bytes
// of a pixel without bank conflicts. The 9 weights of two channels stay in registers.
//
//    staged tile, stride 1
//      i i i i        a step reads one row of 4 inputs i (5 at stride 2) and adds it to the up to
//      i o o i        three rows of outputs o it belongs to
//      i o o i
//      i i i i
//
// Staging applies batch norm and activation once per input instead of once per tap. Each input is
// read about once from device memory and each output written once; the nine multiply-adds per
// output and the instructions of staging come close to that time, so either may be the bound. At
// the end the slots' moments take the place of the tile and are combined in order. x must have no
// skip and no `applied`.
template <typename T, int kStride>
__global__ void __launch_bounds__(kThreads, kForwardResident)
    ForwardTiles(Geometry g, Plan plan, LazyView<T> x, const float* weights, T* y,
                 StatisticsSums statistics) {
  float* const tile = reinterpret_cast<float*>(SharedBytes());
  float* const coefficients = tile + plan.values.pixels * kSlab;
  const int slab = blockIdx.x % plan.slabs * kSlab;
  const int thread = threadIdx.x;
  if (thread < kSlab && slab + thread < g.channels) {
    const ScaleShift norm = NormCoefficients(x.norm, slab + thread);
    coefficients[thread] = norm.scale;
    coefficients[kSlab + thread] = norm.shift;
  }
  float* const taps = coefficients + 2 * kSlab;
  PutTaps(weights, g.channels, slab, taps);
  const int pair = thread % kPairs * 2;
  const bool active = slab + pair < g.channels;
  OutputSink<T> sink{statistics.parts != nullptr};
  const Extent extent{g.images, g.height, g.width, g.channels};
  StagedPlace* const places = reinterpret_cast<StagedPlace*>(taps + 9 * kSlab);
  PutPlaces(plan.values, extent, places);
  __syncthreads();

  const auto input_of = [&](Origin origin) {
    return Origin{origin.image, origin.row * kStride - g.pad_top,
                  origin.column * 2 * kStride - g.pad_left};
  };
#pragma unroll 1
  for (int t = blockIdx.x / plan.slabs; t < plan.tiles; t += plan.parts) {
    const Origin origin = TileOrigin(plan, t);
    Stage<kBatch<T>>(plan.values, places, extent, input_of(origin), slab + thread % 4 * 8,
                     ValueStager<T>(x, coefficients, tile));
    if (t + plan.parts < plan.tiles) {
      PrefetchTile<T>(plan.values, places, extent, input_of(TileOrigin(plan, t + plan.parts)), slab,
                      x.raw, nullptr);
    }
    __syncthreads();
    if (active) {
      WalkOutputs<T, kStride>(g, plan, origin, tile + pair, taps + pair, y + slab + pair, &sink);
    }
    __syncthreads();
  }

  if (statistics.parts == nullptr) return;
  float* const sums = tile + thread / kPairs * 3 * kSlab;
  sink.moments[0].Put(sink.count, pair, sums);
  sink.moments[1].Put(sink.count, pair + 1, sums);
  __syncthreads();
  WritePart(tile, kSlots, plan.slabs, statistics);
  CombineStatistics<kSlab>(statistics, blockIdx.x % plan.slabs, SharedBytes());
}

// The shapes that have no tiles: any kernel, stride and number of channels, and inputs with a skip.
// A block owns 32 channels; a thread owns one and takes every (8 * parts)-th output pixel. It reads
// each tap from global memory, mostly from the L1 and L2 caches, and applies batch norm again for
// each tap. Shared memory only combines the moments of the 8 slots. Index arithmetic and the
// latency of the loads are the likely bounds.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    ForwardGeneric(Geometry g, Plan plan, LazyView<T> x, const float* weights, T* y,
                   StatisticsSums statistics) {
  const int thread = threadIdx.x;
  const int channel = blockIdx.x % plan.slabs * kSlab + thread % kSlab;
  const int slot = thread / kSlab;
  Moments moments;
  int count = 0;
  if (channel < g.channels) {
    const ScaleShift norm = NormCoefficients(x.norm, channel);
    const Bounds bounds = x.bounds;
    const int64_t outputs = static_cast<int64_t>(g.images) * g.out_height * g.out_width;
    const int64_t step = static_cast<int64_t>(plan.parts) * kGenericSlots;
    for (int64_t i = blockIdx.x / plan.slabs * kGenericSlots + slot; i < outputs; i += step) {
      const int column = static_cast<int>(i % g.out_width) * g.stride - g.pad_left;
      const int row = static_cast<int>(i / g.out_width % g.out_height) * g.stride - g.pad_top;
      const int64_t image = i / g.out_width / g.out_height;
      float sum = 0.0f;
      for (int kh = max(0, -row); kh < min(g.kernel, g.height - row); ++kh) {
        for (int kw = max(0, -column); kw < min(g.kernel, g.width - column); ++kw) {
          const int64_t place =
              ((image * g.height + row + kh) * g.width + column + kw) * g.channels + channel;
          float value = Clamp(fmaf(norm.scale, ToFloat(x.raw[place]), norm.shift), bounds);
          if (x.skip != nullptr) value += ToFloat(x.skip[place]);
          sum = fmaf(value, weights[(kh * g.kernel + kw) * g.channels + channel], sum);
        }
      }
      const T stored = FromFloat<T>(sum);
      y[i * g.channels + channel] = stored;
      if (count == 0) moments.pivot = ToFloat(stored);
      moments.Add(ToFloat(stored));
      ++count;
    }
  }
  if (statistics.parts == nullptr) return;
  float* const sums = reinterpret_cast<float*>(SharedBytes());
  moments.Put(count, thread % kSlab, sums + slot * 3 * kSlab);
  __syncthreads();
  WritePart(sums, kGenericSlots, plan.slabs, statistics);
  CombineStatistics<kSlab>(statistics, blockIdx.x % plan.slabs, SharedBytes());
}

}  // namespace
}  // namespace depthwise

template <typename T>
void DepthwiseForward(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                      const float* weights, T* y, const StatisticsOut<T>& statistics,
                      void* workspace) {
  const depthwise::Geometry geometry = depthwise::GeometryOf(shape);
  const LazyView<T> value = ValueView(x);
  const bool tiled = depthwise::HasTiles(shape) && value.skip == nullptr;
  const depthwise::Plan plan = tiled ? depthwise::TiledForwardPlan(*queue, shape)
                                     : depthwise::GenericForwardPlan(*queue, shape);
  const StatisticsSums sums =
      SumsFor(queue, statistics, plan.parts, shape.in.c, depthwise::kSlab, workspace);
  const auto combining =
      static_cast<size_t>(StatisticsSharedBytes(sums.num_parts, depthwise::kSlab));
  const LaunchShape launch{dim3(plan.blocks()), dim3(depthwise::kThreads),
                           std::max(plan.shared_bytes, combining)};
  if (!tiled) {
    Launch(queue, "depthwise_forward_generic", launch, depthwise::ForwardGeneric<T>, geometry, plan,
           value, weights, y, sums);
  } else {
    Launch(queue, "depthwise_forward", launch,
           shape.stride == 1 ? depthwise::ForwardTiles<T, 1> : depthwise::ForwardTiles<T, 2>,
           geometry, plan, value, weights, y, sums);
  }
}

template void DepthwiseForward<float>(Queue*, const ConvolutionShape&, const Lazy<float>&,
                                      const float*, float*, const StatisticsOut<float>&, void*);
template void DepthwiseForward<Bfloat16>(Queue*, const ConvolutionShape&, const Lazy<Bfloat16>&,
                                         const float*, Bfloat16*, const StatisticsOut<Bfloat16>&,
                                         void*);

}  // namespace pushpull::PUSHPULL_CUDA
