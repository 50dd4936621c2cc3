// Tested by tests/worker/data/augment/editable_image_test.cc.
#include "worker/data/augment/pixel_map_edits.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

namespace pushpull {
namespace {

PixelPosition Opposite(const PixelPosition& step) { return {-step.y, -step.x}; }

}  // namespace

bool IsWholeImage(const PixelMap& map, int height, int width) {
  return map.height == height && map.width == width && !HasPadding(map) && map.origin.y == 0 &&
         map.origin.x == 0 && map.down.y == 1 && map.right.x == 1;
}

bool HasPadding(const PixelMap& map) {
  return map.shown_begin.y > 0 || map.shown_begin.x > 0 || map.shown_end.y < map.height ||
         map.shown_end.x < map.width;
}

void MirrorColumns(PixelMap* map) {
  map->origin = StoredAt(*map, 0, map->width - 1);
  map->right = Opposite(map->right);
  std::swap(map->shown_begin.x, map->shown_end.x);
  map->shown_begin.x = map->width - map->shown_begin.x;
  map->shown_end.x = map->width - map->shown_end.x;
}

void MirrorRows(PixelMap* map) {
  map->origin = StoredAt(*map, map->height - 1, 0);
  map->down = Opposite(map->down);
  std::swap(map->shown_begin.y, map->shown_end.y);
  map->shown_begin.y = map->height - map->shown_begin.y;
  map->shown_end.y = map->height - map->shown_end.y;
}

// Row r of the result is column width - 1 - r of the image. This is the same as mirroring the
// columns and then exchanging rows and columns.
void RotateCounterClockwise(PixelMap* map) {
  MirrorColumns(map);
  std::swap(map->down, map->right);
  std::swap(map->height, map->width);
  std::swap(map->shown_begin.y, map->shown_begin.x);
  std::swap(map->shown_end.y, map->shown_end.x);
}

void Crop(const PixelWindow& window, PixelMap* map) {
  CHECK(window.y >= 0 && window.x >= 0 && window.height > 0 && window.width > 0);
  CHECK(window.y + window.height <= map->height && window.x + window.width <= map->width);
  map->origin = StoredAt(*map, window.y, window.x);
  map->height = window.height;
  map->width = window.width;
  map->shown_begin = {std::clamp(map->shown_begin.y - window.y, 0, window.height),
                      std::clamp(map->shown_begin.x - window.x, 0, window.width)};
  map->shown_end = {std::clamp(map->shown_end.y - window.y, 0, window.height),
                    std::clamp(map->shown_end.x - window.x, 0, window.width)};
}

void Pad(int new_height, int new_width, int y, int x, const std::array<float, 3>& colour,
         PixelMap* map) {
  CHECK(y >= 0 && x >= 0 && y + map->height <= new_height && x + map->width <= new_width);
  CHECK(!HasPadding(*map));
  map->origin = StoredAt(*map, -y, -x);
  map->shown_begin = {y, x};
  map->shown_end = {y + map->height, x + map->width};
  map->height = new_height;
  map->width = new_width;
  std::copy(colour.begin(), colour.end(), map->colour);
}

PixelWindow ShownPixels(const PixelMap& map) {
  const PixelPosition& begin = map.shown_begin;
  const PixelPosition& end = map.shown_end;
  if (end.y <= begin.y || end.x <= begin.x) return {};
  const PixelPosition first = StoredAt(map, begin.y, begin.x);
  const PixelPosition last = StoredAt(map, end.y - 1, end.x - 1);
  return {std::min(first.y, last.y), std::min(first.x, last.x), std::abs(last.y - first.y) + 1,
          std::abs(last.x - first.x) + 1};
}

void MoveOrigin(const PixelWindow& window, PixelMap* map) {
  map->origin.y -= window.y;
  map->origin.x -= window.x;
}

}  // namespace pushpull
