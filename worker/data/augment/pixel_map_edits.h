// Geometric changes of an image that only change its PixelMap (kernels/packed_image.h); no pixel
// moves.
//
// Thread rule: functions without shared state.
#ifndef PUSHPULL_WORKER_DATA_AUGMENT_PIXEL_MAP_EDITS_H_
#define PUSHPULL_WORKER_DATA_AUGMENT_PIXEL_MAP_EDITS_H_

#include <array>

#include "kernels/image_block.h"

namespace pushpull {

// A rectangle of pixels with its upper left corner at (y, x).
struct PixelWindow {
  int y = 0;
  int x = 0;
  int height = 0;
  int width = 0;
  bool operator==(const PixelWindow&) const = default;
};

// Returns whether the map is WholeImage(height, width): every pixel is in its place.
bool IsWholeImage(const PixelMap& map, int height, int width);
// Returns whether a part of the image shows the padding colour and not stored pixels.
bool HasPadding(const PixelMap& map);

void MirrorColumns(PixelMap* map);  // left and right change places
void MirrorRows(PixelMap* map);     // top and bottom change places
void RotateCounterClockwise(PixelMap* map);
// Reduces the image to the window. CHECKs that the window lies within the image.
void Crop(const PixelWindow& window, PixelMap* map);
// Enlarges the image to the new size, places the old one with its upper left corner at (y, x) and
// fills the rest with `colour` (0..255). CHECKs that the old image fits and has no padding yet: a
// map holds only one colour.
void Pad(int new_height, int new_width, int y, int x, const std::array<float, 3>& colour,
         PixelMap* map);

// Returns the smallest window of stored pixels that holds all shown ones. All its fields are 0 if
// the image shows only padding.
PixelWindow ShownPixels(const PixelMap& map);
// Adapts the map to a copy of the stored pixels that holds only `window` of them.
void MoveOrigin(const PixelWindow& window, PixelMap* map);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENT_PIXEL_MAP_EDITS_H_
