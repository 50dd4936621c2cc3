// Packs the images of a batch into a block (kernels/image_block.h) that a device reads. The
// device crops, mirrors, resizes and normalises them itself.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_PACKER_H_
#define PUSHPULL_WORKER_DATA_IMAGE_PACKER_H_

#include <atomic>
#include <cstdint>

#include "kernels/image_block.h"
#include "worker/data/augment/editable_image.h"
#include "worker/data/preprocessor.h"

namespace pushpull {

// Fills one block. Several threads may call Add at the same time for different samples. The order
// of their calls determines the offsets in the block, but not what the network reads.
class ImagePacker {
 public:
  // `data` points to ImageBlockBytes(max_samples, shape.num_elements()) bytes, aligned for a
  // PackedImage. The memory belongs to the caller and must outlive the packer.
  ImagePacker(const InputShape& shape, int64_t max_samples, void* data);

  // Starts a new block for `samples` images. CHECKs that there are at most max_samples.
  void Begin(int64_t samples);
  // Adds the image of one sample. Copies the smallest window of stored bytes that holds all shown
  // pixels. If the window is larger than MaxImageBytes, or the image stores floats after a colour
  // step, writes the finished network input instead, which `preprocessor` computes.
  void Add(int64_t sample, const Shift& shift, EditableImage* image, Preprocessor* preprocessor);

  // Returns a view of the block. The block is complete once every sample has been added.
  PackedImages packed_images() const { return {data_, used_.load()}; }

 private:
  // Reserves `bytes` in the block and returns their offset.
  int64_t Take(int64_t bytes);

  const InputShape shape_;
  const int64_t max_samples_;
  char* const data_;
  std::atomic<int64_t> used_{0};
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_PACKER_H_
