// Blocks of packed pictures (packed_picture.h): how large they are, and whether one is good.
#ifndef PUSHPULL_KERNELS_PICTURE_BLOCK_H_
#define PUSHPULL_KERNELS_PICTURE_BLOCK_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/packed_picture.h"

namespace pushpull {

// A view: the memory belongs to the caller.
struct PackedPictures {
  const void* data = nullptr;
  int64_t bytes = 0;  // that are used

  const PackedPicture* pictures() const { return static_cast<const PackedPicture*>(data); }
};

// A picture as it is stored.
PixelMap WholePicture(int height, int width);

// Pixels begin at multiples of this.
inline constexpr int64_t kPictureAlignment = 16;
int64_t AlignedPictureBytes(int64_t bytes);

// The most that one picture may take of a block: its input as float32, and so a picture of bytes
// with twice the input's sides.
int64_t MaxPictureBytes(int64_t input_elements);
// The bytes of a block for so many pictures.
int64_t PictureBlockBytes(int64_t samples, int64_t input_elements);
// Where the pixels of the first of them may begin.
int64_t PictureHeaderBytes(int64_t samples);

// INVALID_ARGUMENT names the picture of which a pixel would be read outside of the block.
absl::Status CheckPackedPictures(const PictureInput& input, int64_t samples,
                                 const PackedPictures& block);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_PICTURE_BLOCK_H_
