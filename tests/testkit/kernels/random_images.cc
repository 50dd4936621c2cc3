#include "tests/testkit/kernels/random_images.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/base/random.h"

namespace pushpull {
namespace {

// Returns a number from 1 to `most`.
int32_t DrawSide(int32_t most, CounterRandom* random) {
  return 1 + static_cast<int32_t>(random->NextBelow(most));
}

int32_t DrawBelow(int32_t end, CounterRandom* random) {
  return static_cast<int32_t>(random->NextBelow(end));
}

// Draws a window of the stored pixels, turned and mirrored, with padding around it.
PixelMap DrawMap(int32_t height, int32_t width, CounterRandom* random) {
  const int32_t window_height = DrawSide(height, random), window_width = DrawSide(width, random);
  const int32_t top = DrawBelow(height - window_height + 1, random);
  const int32_t left = DrawBelow(width - window_width + 1, random);
  const bool downwards = random->NextBelow(2) == 0, rightwards = random->NextBelow(2) == 0;
  const bool transposed = random->NextBelow(2) == 0;
  PixelMap map = {};
  const PixelPosition along_y = {downwards ? 1 : -1, 0}, along_x = {0, rightwards ? 1 : -1};
  map.down = transposed ? along_x : along_y;
  map.right = transposed ? along_y : along_x;
  map.shown_begin = {DrawBelow(3, random), DrawBelow(3, random)};
  map.shown_end = {map.shown_begin.y + (transposed ? window_width : window_height),
                   map.shown_begin.x + (transposed ? window_height : window_width)};
  map.height = map.shown_end.y + DrawBelow(3, random);
  map.width = map.shown_end.x + DrawBelow(3, random);
  const PixelPosition first = {downwards ? top : top + window_height - 1,
                               rightwards ? left : left + window_width - 1};
  map.origin = {first.y - map.shown_begin.y * map.down.y - map.shown_begin.x * map.right.y,
                first.x - map.shown_begin.y * map.down.x - map.shown_begin.x * map.right.x};
  for (float& value : map.colour) value = static_cast<float>(random->NextBelow(256));
  return map;
}

PackedImage DrawOneImage(const ImageInput& input, int64_t sample, CounterRandom* random) {
  PackedImage image = {};
  image.is_input = sample % 5 == 4 ? 1 : 0;
  image.height = DrawSide(2 * input.height, random);
  image.width = DrawSide(2 * input.width, random);
  image.channels = random->NextBelow(3) == 0 ? 1 : 3;
  image.map = DrawMap(image.height, image.width, random);
  image.resized_height = DrawSide(input.height, random);
  image.resized_width = input.width;
  image.shift = {DrawBelow(5, random) - 2, DrawBelow(5, random) - 2};
  if (sample == 1) {
    image.height = image.resized_height = input.height;
    image.width = input.width;
    image.channels = input.channels;
    image.map = WholeImage(input.height, input.width);
    image.shift = {0, 0};
  }
  return image;
}

// [map.height][map.width]: the values of each pixel in the network's channels, 0 to 255.
using Pixels = std::vector<std::array<double, 3>>;

Pixels EditImage(const PackedImage& image, const uint8_t* stored, int channels) {
  const PixelMap& map = image.map;
  Pixels edited;
  for (int y = 0; y < map.height; ++y) {
    for (int x = 0; x < map.width; ++x) {
      std::array<double, 3> value = {};
      const bool is_shown = y >= map.shown_begin.y && y < map.shown_end.y &&
                            x >= map.shown_begin.x && x < map.shown_end.x;
      const int64_t row = map.origin.y + int64_t{y} * map.down.y + int64_t{x} * map.right.y;
      const int64_t column = map.origin.x + int64_t{y} * map.down.x + int64_t{x} * map.right.x;
      for (int c = 0; c < 3; ++c) {
        const int from = image.channels == 3 ? c : 0;
        value[c] = is_shown ? stored[(row * image.width + column) * image.channels + from]
                            : map.colour[from];
      }
      if (channels == 1) value[0] = 0.2989 * value[0] + 0.5870 * value[1] + 0.1140 * value[2];
      // A grey image is its own luminance.
      if (channels == 1 && image.channels == 1) value[0] = value[1];
      edited.push_back(value);
    }
  }
  return edited;
}

void ReadImage(const ImageInput& input, const PackedImage& image, const char* block, double* out) {
  if (image.is_input != 0) {
    const auto* const floats = reinterpret_cast<const float*>(block + image.offset);
    std::copy_n(floats, input.num_elements(), out);
    return;
  }
  const Pixels edited =
      EditImage(image, reinterpret_cast<const uint8_t*>(block + image.offset), input.channels);
  const int height = image.map.height, width = image.map.width;
  for (int y = 0; y < input.height; ++y) {
    for (int x = 0; x < input.width; ++x, out += input.channels) {
      const int from_y = y - image.shift.y, from_x = x - image.shift.x;
      const bool moved_in =
          from_y < 0 || from_y >= input.height || from_x < 0 || from_x >= input.width;
      const bool is_padding = from_y >= image.resized_height || from_x >= image.resized_width;
      const double at_y = static_cast<double>(from_y) * height / image.resized_height;
      const double at_x = static_cast<double>(from_x) * width / image.resized_width;
      for (int c = 0; c < input.channels; ++c) {
        if (moved_in) {
          out[c] = 0.0;
        } else if (is_padding) {
          out[c] = input.padding[c] * (2.0 / 255.0) - 1.0;
        } else {
          // A coordinate within a rounding error of a whole pixel may fall on either side of it.
          const int top = std::min(static_cast<int>(at_y + 1e-9), height - 1);
          const int left = std::min(static_cast<int>(at_x + 1e-9), width - 1);
          const int bottom = std::min(top + 1, height - 1), right = std::min(left + 1, width - 1);
          const double down = at_y - top, across = at_x - left;
          const auto at = [&](int row, int column) { return edited[row * width + column][c]; };
          const double value =
              (1 - down) * ((1 - across) * at(top, left) + across * at(top, right)) +
              down * ((1 - across) * at(bottom, left) + across * at(bottom, right));
          out[c] = value * (2.0 / 255.0) - 1.0;
        }
      }
    }
  }
}

}  // namespace

std::vector<char> RandomImages(const ImageInput& input, int64_t samples, uint64_t seed) {
  CounterRandom random(seed, 11);
  const int64_t elements = input.num_elements();
  std::vector<char> block(ImageHeaderBytes(samples));
  for (int64_t s = 0; s < samples; ++s) {
    PackedImage image = DrawOneImage(input, s, &random);
    image.offset = static_cast<int64_t>(block.size());
    std::memcpy(block.data() + s * sizeof(image), &image, sizeof(image));
    if (image.is_input != 0) {
      block.resize(image.offset + AlignedImageBytes(elements * sizeof(float)));
      auto* const floats = reinterpret_cast<float*>(block.data() + image.offset);
      for (int64_t i = 0; i < elements; ++i) floats[i] = 2.0f * random.NextFloat() - 1.0f;
      continue;
    }
    const int64_t bytes = int64_t{1} * image.height * image.width * image.channels;
    block.resize(image.offset + AlignedImageBytes(bytes));
    for (int64_t i = 0; i < bytes; ++i) {
      block[image.offset + i] = static_cast<char>(random.NextBelow(256));
    }
  }
  return block;
}

std::vector<double> ReadImagesInDouble(const ImageInput& input, int64_t samples,
                                       const std::vector<char>& block) {
  const int64_t elements = input.num_elements();
  std::vector<double> images(samples * elements);
  for (int64_t s = 0; s < samples; ++s) {
    ReadImage(input, ViewOf(block).images()[s], block.data(), images.data() + s * elements);
  }
  return images;
}

}  // namespace pushpull
