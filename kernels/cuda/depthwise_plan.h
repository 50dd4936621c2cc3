// Cuts a depthwise convolution into blocks and tiles. The functions run on the host; the structs
// are passed to the kernels by value.
//
// A block owns a slab of 32 channels and loops over tiles, which are pieces of one or a few images.
// Its 256 threads are 16 pairs of channels x 16 slots. Each slot walks down columns of the tile in
// steps:
//
//   forward    A step is one row of two neighbouring outputs.
//   backward   A step is `stride` rows of two neighbouring inputs. Rows and columns are counted
//              with the padding, so that at stride 2 a step holds one input of each parity and all
//              steps meet the same taps.
//
//   a tile, 4 columns of steps cut into 2 segments: 8 walks ("items")
//
//       .----.----.----.----.
//       | 0  | 1  | 2  | 3  |    each cell: segment_rows steps, walked
//       |----|----|----|----|    from top to bottom by one slot
//       | 4  | 5  | 6  | 7  |
//       '----'----'----'----'
#ifndef PUSHPULL_KERNELS_CUDA_DEPTHWISE_PLAN_H_
#define PUSHPULL_KERNELS_CUDA_DEPTHWISE_PLAN_H_

#include "kernels/cuda/divisor.h"
#include "kernels/cuda/queue.h"
#include "kernels/host_device.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA::depthwise {

inline constexpr int kSlab = 32;
inline constexpr int kThreads = 256;
inline constexpr int kPairs = kSlab / 2;                // a thread owns a pair of channels
inline constexpr int kSlots = kThreads / kPairs;        // walks that run side by side
inline constexpr int kGenericSlots = kThreads / kSlab;  // generic kernels: one channel per thread
inline constexpr int kMaxKernel = 7;
// The blocks of the tiled kernels that a multiprocessor runs at once.
inline constexpr int kForwardResident = 3, kBackwardResident = 2;

struct Geometry {
  int images, height, width, out_height, out_width, channels;
  int kernel, stride, pad_top, pad_left;
};

// The pixels that a block stages in shared memory, [images][rows][columns].
struct Staged {
  int rows = 0, columns = 0, pixels = 0;
  Divisor by_rows{1}, by_columns{1};
};
// A block keeps the place of each of them in the tensor, a StagedPlace (depthwise_tile.cuh).
inline constexpr int kPlaceBytes = 8;
// Four threads stage a pixel together, eight channels each.
inline constexpr int kPixelsAtOnce = kThreads / 4;

struct Plan {
  int slabs = 1;
  int parts = 1;  // blocks that share the tiles of a slab; each writes one part of the sums
  size_t shared_bytes = 0;
  // The fields below are for the tiled kernels only.
  int images = 1, rows = 1, columns = 1;  // the size of a tile; rows and columns are in steps
  int image_tiles = 1, row_tiles = 1, column_tiles = 1, tiles = 1;
  int segments = 1, segment_rows = 1, items = 1;  // a column of steps is cut into segments
  Divisor by_columns{1}, by_segments{1}, by_row_tiles{1}, by_column_tiles{1};
  // What is staged. Forward: `values` (activated input). Backward: `gradients` (dy) and `inputs`
  // (raw input).
  Staged values, gradients, inputs;

  unsigned blocks() const { return static_cast<unsigned>(slabs) * parts; }
};

// Shapes that the kernels cannot handle are CHECK failures.
Geometry GeometryOf(const ConvolutionShape& shape);

// Whether the tiled kernels can handle the shape: a 3x3 kernel, stride 1 or 2, and a multiple of 8
// channels.
bool HasTiles(const ConvolutionShape& shape);
Plan TiledForwardPlan(const Queue& queue, const ConvolutionShape& shape);
// element_bytes is the size of an activation.
Plan TiledBackwardPlan(const Queue& queue, const ConvolutionShape& shape, int element_bytes);
Plan GenericForwardPlan(const Queue& queue, const ConvolutionShape& shape);
Plan GenericBackwardPlan(const Queue& queue, const ConvolutionShape& shape);

// The layout of a tiled kernel's shared memory:
//   forward:   float [values.pixels][kSlab]
//   backward:  float [gradients.pixels][kSlab], then T [inputs.pixels][kSlab]
// Lines of kSlab floats follow: 2 (forward) or 6 (backward) of coefficients and 9 of
// weights. Then come the places of the staged pixels. At the end of a kernel the sums of all slots
// overwrite the beginning.
inline constexpr int kForwardLines = 2 + 9;
inline constexpr int kBackwardLines = 6 + 9;
// How many output rows before its own row a step of the backward pass reads; the same for columns.
PUSHPULL_HOST_DEVICE constexpr int Back(int stride) { return stride == 1 ? 2 : 1; }

}  // namespace pushpull::PUSHPULL_CUDA::depthwise

#endif  // PUSHPULL_KERNELS_CUDA_DEPTHWISE_PLAN_H_
