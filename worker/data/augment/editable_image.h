// An image on its way from the decoder to the network, while augmentation works on it. Bytes as
// long as only pixels move; numbers in 0..255 once a colour step has touched them, so that nothing
// is rounded between steps.
//
// Geometry steps change the map to the pixels and leave these where they are: they move once, when
// somebody needs them in their places, or not at all where a device reads through the map.
#ifndef PUSHPULL_WORKER_DATA_AUGMENT_EDITABLE_IMAGE_H_
#define PUSHPULL_WORKER_DATA_AUGMENT_EDITABLE_IMAGE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "worker/data/augment/pixel_map_edits.h"
#include "worker/data/image_source.h"
#include "worker/data/preprocessor.h"

namespace pushpull {

// Keeps its memory from image to image: use one per thread. Not thread-safe.
class EditableImage {
 public:
  // Takes the pixels and leaves the memory of an earlier image in *image.
  void Take(Image* image);

  int height() const { return map_.height; }
  int width() const { return map_.width; }
  int channels() const { return channels_; }
  int64_t num_values() const { return int64_t{1} * height() * width() * channels_; }

  void MirrorColumns() { pushpull::MirrorColumns(&map_); }
  void MirrorRows() { pushpull::MirrorRows(&map_); }
  void RotateCounterClockwise() { pushpull::RotateCounterClockwise(&map_); }
  // The window lies within the image.
  void Crop(const PixelWindow& window) { pushpull::Crop(window, &map_); }
  // Puts the image at (y, x) into one of the new size, which is at least as large, filled with the
  // colour (one value per channel, 0..255).
  void Pad(int new_height, int new_width, int y, int x, const std::array<float, 3>& colour);

  // Mean of each channel.
  std::array<float, 3> MeanColour();

  // [height, width, channels] in 0..255, to change in place.
  std::vector<float>& Floats();
  // Valid until the image changes.
  PixelView View();

  // The pixels as they are stored, and the way to them. A view of bytes or of floats.
  PixelView Stored() const;
  const PixelMap& map() const { return map_; }

 private:
  // Moves the pixels to where the map has them.
  void Arrange();
  template <typename Pixel>
  void ArrangeInto(const std::vector<Pixel>& from, std::vector<Pixel>* to) const;

  int stored_height_ = 0;
  int stored_width_ = 0;
  int channels_ = 0;
  PixelMap map_ = {};
  bool is_float_ = false;
  std::vector<uint8_t> bytes_, byte_scratch_;
  std::vector<float> floats_, float_scratch_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENT_EDITABLE_IMAGE_H_
