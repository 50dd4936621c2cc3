// Blocks of random packed images of every kind, and a simple reference of what a network reads of
// them.
#ifndef PUSHPULL_TESTS_TESTKIT_KERNELS_RANDOM_IMAGES_H_
#define PUSHPULL_TESTS_TESTKIT_KERNELS_RANDOM_IMAGES_H_

#include <cstdint>
#include <vector>

#include "kernels/image_block.h"

namespace pushpull {

// Returns a block with `samples` images of up to twice the input's sides: grey or in colour, in all
// eight orientations, cropped, padded, stretched and shifted, and some finished inputs among them.
// The second image has the input's size and is unchanged.
std::vector<char> RandomImages(const ImageInput& input, int64_t samples, uint64_t seed);

// Returns [samples, height, width, channels]: images edited pixel by pixel and resized in double.
std::vector<double> ReadImagesInDouble(const ImageInput& input, int64_t samples,
                                       const std::vector<char>& block);

inline PackedImages ViewOf(const std::vector<char>& block) {
  return {block.data(), static_cast<int64_t>(block.size())};
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_KERNELS_RANDOM_IMAGES_H_
