// An image on its way from the decoder to the network, while augmentation works on it. Bytes as
// long as only pixels move; numbers in 0..255 once a colour step has touched them, so that nothing
// is rounded between steps.
#ifndef PUSHPULL_WORKER_DATA_AUGMENT_EDITABLE_IMAGE_H_
#define PUSHPULL_WORKER_DATA_AUGMENT_EDITABLE_IMAGE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "worker/data/image_source.h"
#include "worker/data/preprocessor.h"

namespace pushpull {

// A rectangle of pixels.
struct PixelWindow {
  int y = 0;
  int x = 0;
  int height = 0;
  int width = 0;
  bool operator==(const PixelWindow&) const = default;
};

// Keeps its memory from image to image: use one per thread. Not thread-safe.
class EditableImage {
 public:
  // Takes the pixels and leaves the memory of an earlier image in *image.
  void Take(Image* image);

  int height() const { return height_; }
  int width() const { return width_; }
  int channels() const { return channels_; }
  int64_t num_values() const { return int64_t{1} * height_ * width_ * channels_; }

  void MirrorColumns();
  void MirrorRows();
  void RotateCounterClockwise();
  // The window lies within the image.
  void Crop(const PixelWindow& window);
  // Puts the image at (y, x) into one of the new size, which is at least as large, filled with the
  // colour (one value per channel, 0..255).
  void Pad(int new_height, int new_width, int y, int x, const std::array<float, 3>& colour);

  // Mean of each channel.
  std::array<float, 3> MeanColour() const;

  // [height, width, channels] in 0..255, to change in place.
  std::vector<float>& Floats();
  // Valid until the image changes.
  PixelView View() const;

 private:
  // Calls edit(&pixels) on whichever of the two holds the image.
  template <typename Edit>
  void EditPixels(const Edit& edit);

  int height_ = 0;
  int width_ = 0;
  int channels_ = 0;
  bool is_float_ = false;
  std::vector<uint8_t> bytes_, byte_scratch_;
  std::vector<float> floats_, float_scratch_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENT_EDITABLE_IMAGE_H_
