// Blocks of packed images of all kinds, and what a network reads of them, computed the long way.
#ifndef PUSHPULL_TESTS_TESTKIT_KERNELS_RANDOM_IMAGES_H_
#define PUSHPULL_TESTS_TESTKIT_KERNELS_RANDOM_IMAGES_H_

#include <cstdint>
#include <vector>

#include "kernels/image_block.h"

namespace pushpull {

// A block with `samples` images: of any size up to twice the input's sides, grey or in colour, in
// all eight orientations, cropped, padded, of other proportions, shifted; some finished inputs
// among them. The second image is as large as the input and left as it is.
std::vector<char> RandomImages(const ImageInput& input, int64_t samples, uint64_t seed);

// [samples, height, width, channels]: the edited images pixel by pixel, resized in double.
std::vector<double> ReadImagesInDouble(const ImageInput& input, int64_t samples,
                                       const std::vector<char>& block);

inline PackedImages ViewOf(const std::vector<char>& block) {
  return {block.data(), static_cast<int64_t>(block.size())};
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_KERNELS_RANDOM_IMAGES_H_
