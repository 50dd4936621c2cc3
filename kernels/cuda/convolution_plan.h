// Cuts the work of a dense convolution into blocks. Pure functions on the host.
#ifndef PUSHPULL_KERNELS_CUDA_CONVOLUTION_PLAN_H_
#define PUSHPULL_KERNELS_CUDA_CONVOLUTION_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/convolution_product.cuh"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/queue.h"

namespace pushpull::PUSHPULL_CUDA {

// Enough blocks to keep the device busy, and few enough that their partial sums are small compared
// with the tensors.
inline constexpr int kBlocksPerMultiprocessor = 4;
// The most shared memory with which two blocks still fit on a multiprocessor of the larger devices
// (228 KiB).
inline constexpr int kResidentBytes = 112 * 1024;

enum class Pass { kForward, kInputGradient };

// The blocks of a kernel that must fit into a multiprocessor, which bounds its registers. Narrow
// pointwise tiles have little to compute, so they need more blocks to cover the latency of memory.
constexpr int BlocksPerMultiprocessor(Pass pass, int columns, Access access) {
  if (columns == 128) return 1;
  const bool narrow = columns == 32 && access == Access::kPointwise;
  return narrow && pass == Pass::kForward ? 3 : 2;
}

// Gives each block a share of the row tiles and one group of tile_columns columns. Unless
// there are very many groups, all blocks run at once, because each has to load its weights and
// coefficients and to add its sums to those of the others.
inline ProductPlan PlanProduct(const Queue& queue, Pass pass, int rows, int columns,
                               int tile_columns, Access access) {
  ProductPlan plan;
  plan.row_tiles = CeilDivide(rows, kTileRows);
  plan.column_tiles = CeilDivide(columns, tile_columns);
  const int at_once = BlocksPerMultiprocessor(pass, tile_columns, access);
  const int wanted = std::max(1, queue.multiprocessors * at_once / plan.column_tiles);
  plan.tiles_per_block = CeilDivide(plan.row_tiles, std::min(plan.row_tiles, wanted));
  plan.blocks = CeilDivide(plan.row_tiles, plan.tiles_per_block);
  plan.resident = false;
  return plan;
}

inline Access ChooseAccess(const ConvolutionShape& shape) {
  const bool pointwise = shape.kernel == 1 && shape.stride == 1 && shape.padding == Padding{};
  return pointwise ? Access::kPointwise : Access::kTaps;
}

// An operand that is read at least this often is written to memory first, because that pays.
inline constexpr int kReadsThatPay = 3;
// The weight gradient reads dy once per kTileRows columns of the value.
inline int WeightGradientReads(const ConvolutionShape& shape) {
  const int64_t channels = PaddedChannels(static_cast<int>(shape.in.c));
  return CeilDivide(shape.kernel * shape.kernel * channels, kTileRows);
}

// A device with at least this much shared memory per block has room for wide tiles and all slots of
// a ring. Only devices of capability 7.5 have less.
inline constexpr int kRoomyBytes = 96 * 1024;
inline bool IsRoomy(const Queue& queue) { return queue.shared_bytes_limit >= kRoomyBytes; }
inline int RingSlots(const Queue& queue) { return IsRoomy(queue) ? kRingSlots : 1; }

// Chooses the tile width among the instantiated kernels. Over taps a wide tile reads the rows less
// often, since each group of columns reads all of them. Two blocks with tiles of 64 columns, where
// one works while the other waits, are faster than one with 128: on an H200 a step of MobileNetV2
// was 5 % faster.
template <typename T>
int TileColumns(const Queue& queue, Access access, int columns) {
  if (std::is_same_v<T, float>) return 64;
  if (columns <= 32) return 32;
  if (access == Access::kTaps) return columns <= 64 ? 64 : 128;
  return IsRoomy(queue) ? 64 : 32;
}

// The most blocks that can share the rows, for any tile width.
inline int64_t MaxProductBlocks(const Queue& queue, int64_t rows) {
  return std::min<int64_t>(CeilDivide(rows, kTileRows),
                           int64_t{queue.multiprocessors} * kBlocksPerMultiprocessor);
}

// Decides what a block keeps in shared memory and returns its bytes. The whole panel of weights
// stays there if it fits in kResidentBytes; otherwise it is streamed chunk by chunk. Devices with
// little shared memory have no room for the coefficients of many channels and read those from
// device memory. Memory is a ProductMemory; `ring_vectors` is that of the rows, or 0 if they have
// no ring.
template <typename Memory>
int PlanShared(const Queue& queue, int reduction, int ring_vectors, int coefficients,
               ProductPlan* plan) {
  plan->ring_slots = RingSlots(queue);
  plan->ring_bytes = plan->ring_slots * RingSlotBytes(ring_vectors);
  const auto total = [&](bool resident, int shared_coefficients) {
    return plan->ring_bytes + Memory::TotalBytes(reduction, resident, shared_coefficients);
  };
  plan->shares_coefficients = true;
  const int resident = total(true, coefficients);
  plan->resident = resident <= std::min(queue.shared_bytes_limit, kResidentBytes);
  if (plan->resident) return resident;
  const int streamed = total(false, coefficients);
  plan->shares_coefficients = streamed <= queue.shared_bytes_limit;
  return plan->shares_coefficients ? streamed : total(false, 0);
}

// The workspace for the coefficients of either direction, for the case that they are not in shared
// memory.
inline int64_t CoefficientBytes(const ConvolutionShape& shape) {
  const int64_t channels = std::max(shape.in.c, shape.out_channels);
  return 4 * PaddedChannels(static_cast<int>(channels)) * static_cast<int64_t>(sizeof(float));
}

// The workspace for the packed weights of either direction: whole chunks and groups of columns.
template <typename T>
int64_t PackedBytes(const ConvolutionShape& shape) {
  const ConvolutionGeometry geometry(shape);
  const auto elements = [](int reduction, int columns) {
    return int64_t{CeilDivide(reduction, kChunk)} * kChunk * CeilDivide(columns, 128) * 128;
  };
  return static_cast<int64_t>(sizeof(T)) *
         std::max(elements(geometry.Reduction(geometry.in_c), geometry.out_c),
                  elements(geometry.Reduction(geometry.out_c), geometry.in_c));
}

// Queues the kernel that packs the weights, unless blocks keep all of their columns.
template <typename T, int kColumns, MatrixLayout kLayout>
void PackPanel(Queue* queue, const ProductPlan& plan, const PanelWeights& weights, T* packed) {
  if (plan.resident) return;
  const dim3 grid(CeilDivide(weights.reduction, kChunk), plan.column_tiles);
  Launch(queue, "convolution_weights", {grid, dim3(kTileThreads)},
         PackPanelKernel<T, kColumns, kLayout>, weights, packed);
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CONVOLUTION_PLAN_H_
