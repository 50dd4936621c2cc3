// A decoded image while augmentation changes it.
//
// The image stores its pixels as bytes until the first colour step. From then on it stores floats
// in 0..255, so that nothing is rounded between colour steps.
//
// Geometry steps do not move pixels. They change a map (PixelMap) from positions in the image to
// the stored pixels. The pixels move once, when a caller needs them in their final places, or never
// when a device reads them through the map.
#ifndef PUSHPULL_WORKER_DATA_AUGMENT_EDITABLE_IMAGE_H_
#define PUSHPULL_WORKER_DATA_AUGMENT_EDITABLE_IMAGE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "worker/data/augment/pixel_map_edits.h"
#include "worker/data/image_source.h"
#include "worker/data/preprocessor.h"

namespace pushpull {

// Not thread-safe. Reuses its buffers for the next image, so keep one object per thread.
class EditableImage {
 public:
  // Takes the pixels of *image by swapping buffers: image->pixels then holds old bytes, and its
  // memory can be reused. An image that is still encoded stays so until its pixels are needed; then
  // only those are decoded that the map leads to.
  void Take(Image* image);
  // Decodes the image if it is still encoded. Returns the error of the decoding, whichever call
  // needed the pixels; after an error they are black.
  absl::Status Decode();

  int height() const { return map_.height; }
  int width() const { return map_.width; }
  int channels() const { return channels_; }
  int64_t num_values() const { return int64_t{1} * height() * width() * channels_; }

  void MirrorColumns() { pushpull::MirrorColumns(&map_); }
  void MirrorRows() { pushpull::MirrorRows(&map_); }
  void RotateCounterClockwise() { pushpull::RotateCounterClockwise(&map_); }
  // CHECKs that the window lies within the image.
  void Crop(const PixelWindow& window) { pushpull::Crop(window, &map_); }
  // Enlarges the image to the new size, places the old one with its upper left corner at (y, x) and
  // fills the rest with `colour` (red, green and blue, 0..255). An image of one channel gets three
  // if the colour is not grey. CHECKs that the old image fits.
  void Pad(int new_height, int new_width, int y, int x, const std::array<float, 3>& colour);

  // Returns the mean of red, green and blue, 0..255: three times the same for one channel.
  std::array<float, 3> MeanColour();

  // Moves the pixels to their places and returns them as floats in 0..255, [height, width,
  // channels], which the caller may change. The image stores floats from now on.
  std::vector<float>& Floats();
  // Moves the pixels to their places and returns a view of them, bytes or floats. Valid until the
  // image changes.
  PixelView View();
  // As View, but moves the pixels only if the image has padding: map() leads to them.
  PixelView ViewWithoutPadding();

  // Returns a view of the pixels as they are stored, bytes or floats; map() leads from positions in
  // the image to them. Valid until the image changes. CHECKs that the image is decoded.
  PixelView Stored() const;
  const PixelMap& map() const { return map_; }

 private:
  // Repeats the stored values of one channel, so that the image has three.
  void AddColourChannels();
  // Moves the pixels to the positions that the map gives them, and resets the map.
  void Arrange();
  template <typename Pixel>
  void ArrangeInto(const std::vector<Pixel>& from, std::vector<Pixel>* to) const;

  int stored_height_ = 0;
  int stored_width_ = 0;
  int channels_ = 0;
  PixelMap map_ = {};
  Image encoded_;  // its `jpeg` is not empty before the image is decoded
  absl::Status status_;
  bool is_float_ = false;
  std::vector<uint8_t> bytes_, byte_scratch_;
  std::vector<float> floats_, float_scratch_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENT_EDITABLE_IMAGE_H_
