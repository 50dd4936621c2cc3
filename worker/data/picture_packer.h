// Fills blocks of packed pictures (kernels/picture_block.h): what a device can do itself is left to
// it.
#ifndef PUSHPULL_WORKER_DATA_PICTURE_PACKER_H_
#define PUSHPULL_WORKER_DATA_PICTURE_PACKER_H_

#include <atomic>
#include <cstdint>

#include "kernels/picture_block.h"
#include "worker/data/augment/editable_image.h"
#include "worker/data/preprocessor.h"

namespace pushpull {

// One block. Different threads may add different pictures at the same time; where in the block they
// come to lie depends on their order, what the network reads of them does not.
class PicturePacker {
 public:
  // `data` has PictureBlockBytes(max_samples, shape.num_elements()), aligned for a PackedPicture.
  PicturePacker(const InputShape& shape, int64_t max_samples, void* data);

  // Begins anew with so many pictures, at most max_samples.
  void Begin(int64_t samples);
  // The pixels of the image that are shown, as they are stored; where these are more than
  // MaxPictureBytes, or a colour step has made numbers of them, what `preprocessor` makes of the
  // image.
  void Add(int64_t sample, const Shift& shift, EditableImage* image, Preprocessor* preprocessor);

  // Once all have been added.
  PackedPictures pictures() const { return {data_, used_.load()}; }

 private:
  // Room for a picture of so many bytes.
  int64_t Take(int64_t bytes);

  const InputShape shape_;
  const int64_t max_samples_;
  char* const data_;
  std::atomic<int64_t> used_{0};
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_PICTURE_PACKER_H_
