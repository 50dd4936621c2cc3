#include "kernels/cuda/depthwise_plan.h"

#include <algorithm>
#include <limits>

#include "absl/functional/function_ref.h"
#include "glog/logging.h"

#include "kernels/cuda/channel_sums.h"
#include "kernels/cuda/depthwise.h"

namespace pushpull::PUSHPULL_CUDA {
namespace depthwise {
namespace {

constexpr int64_t kSharedBudget = 48 * 1024;
constexpr int kBlocksPerMultiprocessor = 8;
constexpr int kResidentBlocks = 3;  // per multiprocessor, roughly

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What one image of a tile needs: loads of eight channels, and bytes of shared memory.
struct Staging {
  int64_t loads, bytes;
};

// What is walked, and rough numbers of instructions.
struct Walk {
  int64_t images, rows, columns;
  int load_cost, step_cost;
};

void SetBlocks(const Queue& queue, int64_t channels, int64_t tiles, Plan* plan) {
  plan->slabs = static_cast<int>(CeilDiv(channels, kSlab));
  const int64_t most = std::clamp<int64_t>(
      int64_t{kBlocksPerMultiprocessor} * queue.multiprocessors / plan->slabs, 1, tiles);
  // As many as give every block the same number of tiles, but for the last.
  plan->parts = static_cast<int>(CeilDiv(tiles, CeilDiv(tiles, most)));
}

// Tries the sizes that fill threads and shared memory well and keeps the fastest by a crude model:
// the halo costs loads, a tile that does not fit the threads costs idle ones.
void ChooseTile(const Queue& queue, const Walk& walk, int64_t slabs, int64_t budget,
                absl::FunctionRef<Staging(int64_t rows, int64_t columns)> staging, Plan* plan) {
  const int64_t at_once = int64_t{kResidentBlocks} * queue.multiprocessors;
  int64_t best = std::numeric_limits<int64_t>::max();
  const auto consider = [&](int64_t images, int64_t rows, int64_t columns) {
    const Staging needed = staging(rows, columns);
    if (needed.bytes * images > budget) return;
    const int64_t row_tiles = CeilDiv(walk.rows, rows),
                  column_tiles = CeilDiv(walk.columns, columns),
                  image_tiles = CeilDiv(walk.images, images);
    const int64_t turns = CeilDiv(row_tiles * column_tiles * image_tiles * slabs, at_once);
    for (int64_t segments = 1; segments <= std::min<int64_t>(rows, 4); ++segments) {
      const int64_t segment_rows = CeilDiv(rows, segments);
      // A walk has a start, of about half a step.
      const int64_t steps = CeilDiv(images * columns * segments, kSlots) * (2 * segment_rows + 1);
      const int64_t cost =
          turns * (CeilDiv(needed.loads * images, kThreads / 4) * walk.load_cost * 2 +
                   steps * walk.step_cost);
      if (cost >= best) continue;
      best = cost;
      plan->images = static_cast<int>(images);
      plan->rows = static_cast<int>(rows);
      plan->columns = static_cast<int>(columns);
      plan->image_tiles = static_cast<int>(image_tiles);
      plan->row_tiles = static_cast<int>(row_tiles);
      plan->column_tiles = static_cast<int>(column_tiles);
      plan->segments = static_cast<int>(CeilDiv(rows, segment_rows));
      plan->segment_rows = static_cast<int>(segment_rows);
    }
  };
  constexpr int64_t kMost = 16;  // rows or columns of a tile
  const int64_t fewest_row_tiles = CeilDiv(walk.rows, kMost),
                fewest_column_tiles = CeilDiv(walk.columns, kMost);
  for (int64_t r = fewest_row_tiles; r <= std::min(walk.rows, fewest_row_tiles * 4 + 4); ++r) {
    for (int64_t c = fewest_column_tiles; c <= std::min(walk.columns, fewest_column_tiles + 3);
         ++c) {
      const int64_t rows = CeilDiv(walk.rows, r), columns = CeilDiv(walk.columns, c);
      consider(1, rows, columns);
      if (r > 1 || c > 1) continue;
      for (int64_t images = 2; images <= std::min<int64_t>(walk.images, kSlots); images *= 2) {
        consider(images, rows, columns);
      }
    }
  }
  if (best == std::numeric_limits<int64_t>::max()) consider(1, 1, 1);
  CHECK(best != std::numeric_limits<int64_t>::max());
}

bool HasTiles(const ConvolutionShape& shape) {
  return shape.kernel == 3 && (shape.stride == 1 || shape.stride == 2) && shape.in.c % 8 == 0;
}

int64_t TilesOf(const Plan& plan) {
  return int64_t{plan.image_tiles} * plan.row_tiles * plan.column_tiles;
}

void CheckShape(const ConvolutionShape& shape) {
  CHECK(shape.kernel >= 1 && shape.kernel <= kMaxKernel)
      << "a depthwise convolution of kernel size " << shape.kernel << "; 1 to " << kMaxKernel
      << " are supported";
  CHECK_EQ(shape.in.c, shape.out_channels);
  CHECK_LT(shape.in.rows(), int64_t{1} << 31);
  CHECK_LT(shape.in.h * shape.in.w * shape.in.c, int64_t{1} << 31);
  CHECK_LT(shape.out_h() * shape.out_w() * shape.in.c, int64_t{1} << 31);
}

}  // namespace

Geometry GeometryOf(const ConvolutionShape& shape) {
  CheckShape(shape);
  return {static_cast<int>(shape.in.n),
          static_cast<int>(shape.in.h),
          static_cast<int>(shape.in.w),
          static_cast<int>(shape.out_h()),
          static_cast<int>(shape.out_w()),
          static_cast<int>(shape.in.c),
          shape.kernel,
          shape.stride,
          shape.padding.top,
          shape.padding.left};
}

Plan ForwardPlan(const Queue& queue, const ConvolutionShape& shape) {
  const int64_t stride = shape.stride;
  Plan plan;
  plan.tiled = HasTiles(shape);
  constexpr int64_t kSumBytes = int64_t{3} * kSlots * kSlab * sizeof(float);
  if (!plan.tiled) {
    SetBlocks(queue, shape.in.c, CeilDiv(shape.out().rows(), kGenericSlots), &plan);
    plan.shared_bytes = kSumBytes;
    return plan;
  }
  const auto staging = [&](int64_t rows, int64_t columns) -> Staging {
    const int64_t pixels = ((rows - 1) * stride + 3) * ((2 * columns - 1) * stride + 3);
    return {pixels, pixels * kSlab * static_cast<int64_t>(sizeof(float))};
  };
  constexpr int64_t kLineBytes = kForwardLines * kSlab * sizeof(float);
  const Walk walk{shape.in.n, shape.out_h(), CeilDiv(shape.out_w(), 2), 50, 70};
  ChooseTile(queue, walk, CeilDiv(shape.in.c, kSlab), kSharedBudget - kLineBytes, staging, &plan);
  SetBlocks(queue, shape.in.c, TilesOf(plan), &plan);
  plan.shared_bytes =
      std::max(staging(plan.rows, plan.columns).bytes * plan.images + kLineBytes, kSumBytes);
  return plan;
}

Plan BackwardPlan(const Queue& queue, const ConvolutionShape& shape, int element_bytes) {
  const int64_t stride = shape.stride;
  Plan plan;
  plan.tiled = HasTiles(shape);
  if (!plan.tiled) {
    SetBlocks(queue, shape.in.c, CeilDiv(shape.in.rows(), kGenericSlots), &plan);
    plan.shared_bytes =
        (kMaxKernel * kMaxKernel + 2) * size_t{kGenericSlots} * kSlab * sizeof(float);
    return plan;
  }
  const auto staging = [&](int64_t rows, int64_t columns) -> Staging {
    const int64_t back = Back(shape.stride);
    const int64_t gradients = (rows + back) * (2 * columns / stride + back),
                  inputs = rows * stride * 2 * columns;
    return {2 * gradients + inputs,
            (gradients * static_cast<int64_t>(sizeof(float)) + inputs * element_bytes) * kSlab};
  };
  constexpr int64_t kLineBytes = kBackwardLines * kSlab * sizeof(float);
  // Steps begin at multiples of the stride, padding included.
  const int64_t top = shape.padding.top % stride, left = shape.padding.left % stride;
  const Walk walk{shape.in.n, CeilDiv(top + shape.in.h, stride), CeilDiv(left + shape.in.w, 2), 35,
                  static_cast<int>(65 * (stride + 1))};
  ChooseTile(queue, walk, CeilDiv(shape.in.c, kSlab), kSharedBudget - kLineBytes, staging, &plan);
  SetBlocks(queue, shape.in.c, TilesOf(plan), &plan);
  constexpr int64_t kSumBytes = int64_t{9 + 2} * kSlots * kSlab * sizeof(float);
  plan.shared_bytes =
      std::max(staging(plan.rows, plan.columns).bytes * plan.images + kLineBytes, kSumBytes);
  return plan;
}

}  // namespace depthwise

int64_t DepthwiseWorkspaceBytes(const Queue& queue, const ConvolutionShape& shape) {
  const int64_t channels = shape.in.c;
  int64_t bytes = StatisticsPartBytes(depthwise::ForwardPlan(queue, shape).parts, channels);
  for (const int element_bytes : {2, 4}) {
    const int64_t parts = depthwise::BackwardPlan(queue, shape, element_bytes).parts;
    bytes = std::max(bytes,
                     GradientPartBytes(parts, channels) +
                         parts * shape.depthwise_weights() * static_cast<int64_t>(sizeof(float)));
  }
  return bytes;
}

}  // namespace pushpull::PUSHPULL_CUDA
