// What geometry steps do to a picture, done to its map instead: no pixel moves.
#ifndef PUSHPULL_WORKER_DATA_AUGMENT_PIXEL_MAP_EDITS_H_
#define PUSHPULL_WORKER_DATA_AUGMENT_PIXEL_MAP_EDITS_H_

#include <array>

#include "kernels/picture_block.h"

namespace pushpull {

// A rectangle of pixels.
struct PixelWindow {
  int y = 0;
  int x = 0;
  int height = 0;
  int width = 0;
  bool operator==(const PixelWindow&) const = default;
};

// As WholePicture(height, width).
bool IsWholePicture(const PixelMap& map, int height, int width);
// Some of it shows the padding's colour.
bool HasPadding(const PixelMap& map);

void MirrorColumns(PixelMap* map);
void MirrorRows(PixelMap* map);
void RotateCounterClockwise(PixelMap* map);
// CHECKs that the window lies within the picture.
void Crop(const PixelWindow& window, PixelMap* map);
// Puts the picture, which has no padding yet, at (y, x) into one of the new size. CHECKs that it
// fits.
void Pad(int new_height, int new_width, int y, int x, const std::array<float, 3>& colour,
         PixelMap* map);

// The stored pixels that are shown; of no height or width where there are none.
PixelWindow ShownPixels(const PixelMap& map);
// The same picture where only `window` of the pixels is stored.
void MoveOrigin(const PixelWindow& window, PixelMap* map);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENT_PIXEL_MAP_EDITS_H_
