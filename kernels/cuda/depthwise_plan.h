// How a depthwise convolution is cut into blocks and tiles. Host code; the structs go to the
// kernels by value.
//
// A block owns 32 channels (a slab) and loops over tiles. Threads walk down a tile in steps:
// forward a step is one row of two outputs; backward it is `stride` rows of two inputs, counted
// with the padding, so that at stride 2 a step holds one input of each parity.
#ifndef PUSHPULL_KERNELS_CUDA_DEPTHWISE_PLAN_H_
#define PUSHPULL_KERNELS_CUDA_DEPTHWISE_PLAN_H_

#include "kernels/cuda/queue.h"
#include "kernels/host_device.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA::depthwise {

inline constexpr int kSlab = 32;
inline constexpr int kThreads = 256;
inline constexpr int kPairs = kSlab / 2;                // a thread owns two channels
inline constexpr int kSlots = kThreads / kPairs;        // and walks that many columns at a time
inline constexpr int kGenericSlots = kThreads / kSlab;  // there a thread owns one channel
inline constexpr int kMaxKernel = 5;

struct Geometry {
  int images, height, width, out_height, out_width, channels;
  int kernel, stride, pad_top, pad_left;
};

// Pixels that a block stages in shared memory, [images][rows][columns], and how a thread that takes
// every kPixelsAtOnce-th of them goes on from one to the next.
struct Staged {
  int rows = 0, columns = 0, pixels = 0;
  int step_image = 0, step_row = 0, step_column = 0;
  // p / rows = p * inverse_rows >> 16 for p < kPixelsAtOnce.
  unsigned inverse_rows = 0, inverse_columns = 0;
};
// Four threads stage a pixel, eight channels each.
inline constexpr int kPixelsAtOnce = kThreads / 4;

struct Plan {
  int slabs = 1;
  int parts = 1;  // blocks = slabs * parts; each writes the part of its sums
  size_t shared_bytes = 0;
  // The rest is of the tiled kernels.
  int images = 1, rows = 1, columns = 1;  // of a tile, in steps
  int image_tiles = 1, row_tiles = 1, column_tiles = 1, tiles = 1;
  int segments = 1, segment_rows = 1, items = 1;  // a column of a tile is cut among threads
  // Forward: activated input. Backward: dy, and raw input.
  Staged values, gradients, inputs;

  unsigned blocks() const { return static_cast<unsigned>(slabs) * parts; }
};

Geometry GeometryOf(const ConvolutionShape& shape);

// Whether the tiled kernels can do it: 3x3, stride 1 or 2, channels in eights.
bool HasTiles(const ConvolutionShape& shape);
Plan TiledForwardPlan(const Queue& queue, const ConvolutionShape& shape);
// element_bytes: of an activation.
Plan TiledBackwardPlan(const Queue& queue, const ConvolutionShape& shape, int element_bytes);
Plan GenericForwardPlan(const Queue& queue, const ConvolutionShape& shape);
Plan GenericBackwardPlan(const Queue& queue, const ConvolutionShape& shape);

// Shared memory of the tiled kernels; the kernels lay it out the same way.
//   forward:  float [plan.values][kSlab]
//   backward: float [plan.gradients][kSlab], T [plan.inputs][kSlab]
// Then lines of kSlab floats: coefficients, and nine of weights.
inline constexpr int kForwardLines = 2 + 9;
inline constexpr int kBackwardLines = 6 + 9;
// Output rows before a step's own that its inputs reach.
PUSHPULL_HOST_DEVICE constexpr int Back(int stride) { return stride == 1 ? 2 : 1; }

}  // namespace pushpull::PUSHPULL_CUDA::depthwise

#endif  // PUSHPULL_KERNELS_CUDA_DEPTHWISE_PLAN_H_
