// Tested by tests/kernels/cuda/depthwise_test.cc.
#include "kernels/cuda/depthwise_plan.h"

#include <algorithm>
#include <limits>

#include "absl/functional/function_ref.h"
#include "glog/logging.h"

#include "kernels/cuda/channel_sums.h"
#include "kernels/cuda/depthwise.h"
#include "kernels/cuda/divisor.h"

namespace pushpull::PUSHPULL_CUDA {
namespace depthwise {
namespace {

constexpr int kBlocksPerMultiprocessor = 8;  // the most that are launched
constexpr int64_t kTileCost = 150;  // the instructions that a tile takes besides loads and steps

// What one image of a tile needs: the number of loads of eight channels, and the bytes of shared
// memory.
struct Staging {
  int64_t loads, bytes;
};

// The size of the whole walk, in steps, and the rough numbers of instructions that a load and a
// step take.
struct Walk {
  int64_t images, rows, columns;
  int load_cost, step_cost;
  int resident;  // the blocks that a multiprocessor runs at once
};

// The shared memory of a block, so that `resident` blocks fit into a multiprocessor of the larger
// devices, whose blocks may have nearly all of it.
int64_t SharedBudget(const Queue& queue, int resident) {
  constexpr int64_t kLeast = 48 * 1024, kReserved = 1024;  // CUDA keeps as much for each block
  return std::max(kLeast, queue.shared_bytes_limit / resident - kReserved);
}

// Chooses how many blocks share the tiles of a slab. All run at once, `resident` per
// multiprocessor.
void SetBlocks(const Queue& queue, int64_t channels, int64_t tiles, int resident, Plan* plan) {
  plan->slabs = CeilDivide(channels, kSlab);
  const int64_t most =
      std::clamp<int64_t>(int64_t{resident} * queue.multiprocessors / plan->slabs, 1, tiles);
  // Every block gets the same number of tiles, except perhaps the last.
  plan->parts = CeilDivide(tiles, CeilDivide<int64_t>(tiles, most));
}

// Chooses the size of a tile. It tries sizes that fill the threads and the shared memory well and
// keeps the fastest by a crude model of instructions: the border of a tile costs loads, and a tile
// that does not fit the threads leaves some of them idle.
void ChooseTile(const Queue& queue, const Walk& walk, int64_t slabs, int64_t budget,
                absl::FunctionRef<Staging(int64_t rows, int64_t columns)> staging, Plan* plan) {
  const int64_t at_once = int64_t{walk.resident} * queue.multiprocessors;
  int64_t best = std::numeric_limits<int64_t>::max();
  const auto consider = [&](int64_t images, int64_t rows, int64_t columns) {
    const Staging needed = staging(rows, columns);
    if (needed.bytes * images > budget) return;
    const int64_t row_tiles = CeilDivide<int64_t>(walk.rows, rows),
                  column_tiles = CeilDivide<int64_t>(walk.columns, columns),
                  image_tiles = CeilDivide<int64_t>(walk.images, images);
    const int64_t turns =
        CeilDivide<int64_t>(row_tiles * column_tiles * image_tiles * slabs, at_once);
    for (int64_t segments = 1; segments <= std::min<int64_t>(rows, 4); ++segments) {
      const int64_t segment_rows = CeilDivide<int64_t>(rows, segments);
      // Counted in half steps: the start of a walk costs about half a step.
      const int64_t steps =
          CeilDivide<int64_t>(images * columns * segments, kSlots) * (2 * segment_rows + 1);
      const int64_t cost =
          turns * (CeilDivide<int64_t>(needed.loads * images, kThreads / 4) * walk.load_cost * 2 +
                   steps * walk.step_cost + 2 * kTileCost);
      if (cost >= best) continue;
      best = cost;
      plan->images = static_cast<int>(images);
      plan->rows = static_cast<int>(rows);
      plan->columns = static_cast<int>(columns);
      plan->image_tiles = static_cast<int>(image_tiles);
      plan->row_tiles = static_cast<int>(row_tiles);
      plan->column_tiles = static_cast<int>(column_tiles);
      plan->segments = CeilDivide(rows, segment_rows);
      plan->segment_rows = static_cast<int>(segment_rows);
      plan->items = static_cast<int>(images * columns * plan->segments);
      plan->by_columns = Divisor(plan->columns);
      plan->by_segments = Divisor(plan->segments);
      plan->by_row_tiles = Divisor(plan->row_tiles);
      plan->by_column_tiles = Divisor(plan->column_tiles);
      plan->tiles = static_cast<int>(image_tiles * row_tiles * column_tiles);
    }
  };
  constexpr int64_t kMost = 16;  // the most rows or columns of a tile, in steps
  const int64_t fewest_row_tiles = CeilDivide<int64_t>(walk.rows, kMost),
                fewest_column_tiles = CeilDivide<int64_t>(walk.columns, kMost);
  for (int64_t r = fewest_row_tiles; r <= std::min(walk.rows, fewest_row_tiles * 4 + 4); ++r) {
    for (int64_t c = fewest_column_tiles; c <= std::min(walk.columns, fewest_column_tiles + 3);
         ++c) {
      const int64_t rows = CeilDivide<int64_t>(walk.rows, r),
                    columns = CeilDivide<int64_t>(walk.columns, c);
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

Staged StagedPixels(int64_t images, int64_t rows, int64_t columns) {
  Staged staged;
  staged.rows = static_cast<int>(rows);
  staged.columns = static_cast<int>(columns);
  staged.pixels = static_cast<int>(images * rows * columns);
  staged.by_rows = Divisor(staged.rows);
  staged.by_columns = Divisor(staged.columns);
  return staged;
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

bool HasTiles(const ConvolutionShape& shape) {
  return shape.kernel == 3 && (shape.stride == 1 || shape.stride == 2) && shape.in.c % 8 == 0;
}

Plan TiledForwardPlan(const Queue& queue, const ConvolutionShape& shape) {
  const int64_t stride = shape.stride;
  const auto rows_of = [&](int64_t steps) { return (steps - 1) * stride + 3; };
  const auto columns_of = [&](int64_t steps) { return (2 * steps - 1) * stride + 3; };
  const auto staging = [&](int64_t rows, int64_t columns) -> Staging {
    const int64_t pixels = rows_of(rows) * columns_of(columns);
    return {pixels, pixels * (kSlab * static_cast<int64_t>(sizeof(float)) + kPlaceBytes)};
  };
  constexpr int64_t kLineBytes = kForwardLines * kSlab * sizeof(float);
  const Walk walk{shape.in.n, shape.out_h(),   CeilDivide<int64_t>(shape.out_w(), 2), 40,
                  70,         kForwardResident};
  Plan plan;
  ChooseTile(queue, walk, CeilDivide<int64_t>(shape.in.c, kSlab),
             SharedBudget(queue, walk.resident) - kLineBytes, staging, &plan);
  SetBlocks(queue, shape.in.c, plan.tiles, walk.resident, &plan);
  plan.values = StagedPixels(plan.images, rows_of(plan.rows), columns_of(plan.columns));
  constexpr int64_t kSumBytes = int64_t{3} * kSlots * kSlab * sizeof(float);
  plan.shared_bytes =
      std::max(staging(plan.rows, plan.columns).bytes * plan.images + kLineBytes, kSumBytes);
  return plan;
}

Plan TiledBackwardPlan(const Queue& queue, const ConvolutionShape& shape, int element_bytes) {
  const int64_t stride = shape.stride, back = Back(shape.stride);
  const auto gradient_columns = [&](int64_t steps) { return 2 * steps / stride + back; };
  const auto staging = [&](int64_t rows, int64_t columns) -> Staging {
    const int64_t gradients = (rows + back) * gradient_columns(columns),
                  inputs = rows * stride * 2 * columns;
    return {2 * gradients + inputs,
            (gradients * static_cast<int64_t>(sizeof(float)) + inputs * element_bytes) * kSlab +
                (gradients + inputs) * kPlaceBytes};
  };
  constexpr int64_t kLineBytes = kBackwardLines * kSlab * sizeof(float);
  // Steps begin at multiples of the stride, counted with the padding.
  const int64_t top = shape.padding.top % stride, left = shape.padding.left % stride;
  const Walk walk{shape.in.n,
                  CeilDivide<int64_t>(top + shape.in.h, stride),
                  CeilDivide<int64_t>(left + shape.in.w, 2),
                  35,
                  static_cast<int>(65 * (stride + 1)),
                  kBackwardResident};
  Plan plan;
  ChooseTile(queue, walk, CeilDivide<int64_t>(shape.in.c, kSlab),
             SharedBudget(queue, walk.resident) - kLineBytes, staging, &plan);
  SetBlocks(queue, shape.in.c, plan.tiles, walk.resident, &plan);
  plan.gradients = StagedPixels(plan.images, plan.rows + back, gradient_columns(plan.columns));
  plan.inputs = StagedPixels(plan.images, plan.rows * stride, 2 * plan.columns);
  constexpr int64_t kSumBytes = int64_t{9 + 2} * kSlots * kSlab * sizeof(float);
  plan.shared_bytes =
      std::max(staging(plan.rows, plan.columns).bytes * plan.images + kLineBytes, kSumBytes);
  return plan;
}

Plan GenericForwardPlan(const Queue& queue, const ConvolutionShape& shape) {
  Plan plan;
  SetBlocks(queue, shape.in.c, CeilDivide<int64_t>(shape.out().rows(), kGenericSlots),
            kBlocksPerMultiprocessor, &plan);
  plan.shared_bytes = size_t{3} * kGenericSlots * kSlab * sizeof(float);
  return plan;
}

Plan GenericBackwardPlan(const Queue& queue, const ConvolutionShape& shape) {
  Plan plan;
  SetBlocks(queue, shape.in.c, CeilDivide<int64_t>(shape.in.rows(), kGenericSlots),
            kBlocksPerMultiprocessor, &plan);
  plan.shared_bytes =
      (shape.kernel * shape.kernel + size_t{2}) * kGenericSlots * kSlab * sizeof(float);
  return plan;
}

}  // namespace depthwise

int64_t DepthwiseWorkspaceBytes(const Queue& queue, const ConvolutionShape& shape) {
  using depthwise::Plan;
  const int64_t channels = shape.in.c;
  int64_t bytes = 0;
  const auto forward = [&](const Plan& plan) {
    bytes = std::max(bytes, StatisticsPartBytes(plan.parts, channels));
  };
  const auto backward = [&](const Plan& plan) {
    bytes = std::max(
        bytes, GradientPartBytes(plan.parts, channels) +
                   plan.parts * shape.depthwise_weights() * static_cast<int64_t>(sizeof(float)));
  };
  forward(depthwise::GenericForwardPlan(queue, shape));
  backward(depthwise::GenericBackwardPlan(queue, shape));
  if (depthwise::HasTiles(shape)) {
    forward(depthwise::TiledForwardPlan(queue, shape));
    backward(depthwise::TiledBackwardPlan(queue, shape, 2));
    backward(depthwise::TiledBackwardPlan(queue, shape, 4));
  }
  return bytes;
}

}  // namespace pushpull::PUSHPULL_CUDA
