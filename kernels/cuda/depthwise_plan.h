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

struct Plan {
  bool tiled = false;  // 3x3, stride 1 or 2, channels in eights; else only the next two count
  int slabs = 1;
  int parts = 1;  // blocks = slabs * parts; each writes the part of its sums
  int images = 1, rows = 1, columns = 1;  // of a tile, in steps
  int image_tiles = 1, row_tiles = 1, column_tiles = 1;
  int segments = 1, segment_rows = 1;  // a column of a tile is cut among threads
  size_t shared_bytes = 0;

  unsigned blocks() const { return static_cast<unsigned>(slabs) * parts; }
};

Geometry GeometryOf(const ConvolutionShape& shape);
Plan ForwardPlan(const Queue& queue, const ConvolutionShape& shape);
// element_bytes: of an activation.
Plan BackwardPlan(const Queue& queue, const ConvolutionShape& shape, int element_bytes);

// Shared memory of the fast kernels; the kernels lay it out the same way.
//   forward:  float [images][in rows][in columns][kSlab] activated input
//   backward: float [images][rows + kBack][2 * columns / stride + kBack][kSlab] dy,
//             T [images][rows * stride][2 * columns][kSlab] raw input
// Then lines of kSlab floats: coefficients, and nine of weights.
inline constexpr int kForwardLines = 2 + 9;
inline constexpr int kBackwardLines = 6 + 9;
// Output rows before a step's own that its inputs reach.
PUSHPULL_HOST_DEVICE constexpr int Back(int stride) { return stride == 1 ? 2 : 1; }

}  // namespace pushpull::PUSHPULL_CUDA::depthwise

#endif  // PUSHPULL_KERNELS_CUDA_DEPTHWISE_PLAN_H_
