// Computes the sizes of blocks of packed images (packed_image.h) and checks blocks. Pure
// functions.
#ifndef PUSHPULL_KERNELS_IMAGE_BLOCK_H_
#define PUSHPULL_KERNELS_IMAGE_BLOCK_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/packed_image.h"

namespace pushpull {

// A view of a block; the memory belongs to the caller.
struct PackedImages {
  const void* data = nullptr;
  int64_t bytes = 0;  // the used part of the block

  const PackedImage* images() const { return static_cast<const PackedImage*>(data); }
};

// The map that shows a stored image unchanged.
PixelMap WholeImage(int height, int width);

// The pixels of each image begin at a multiple of this many bytes.
inline constexpr int64_t kImageAlignment = 16;
// Rounds up to a multiple of kImageAlignment.
int64_t AlignedImageBytes(int64_t bytes);

// The most bytes that the pixels of one image may take: the network's input as float32. That is
// also enough for stored bytes with twice the sides of the input and as many channels.
// input_elements: the numbers of one image of the network's input, height x width x channels.
int64_t MaxImageBytes(int64_t input_elements);
// The bytes of a block that holds any `samples` images.
int64_t ImageBlockBytes(int64_t samples, int64_t input_elements);
// The bytes of the PackedImage structs; the pixels of the first image may begin after them.
int64_t ImageHeaderBytes(int64_t samples);

// Checks that SampleImages reads nothing outside of the block.
//   INVALID_ARGUMENT: a pixel would be read outside of the block, or a field has no meaning; the
//       message names the image by its index. Also if input.channels is not 1 or 3.
absl::Status CheckPackedImages(const ImageInput& input, int64_t samples, const PackedImages& block);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_IMAGE_BLOCK_H_
