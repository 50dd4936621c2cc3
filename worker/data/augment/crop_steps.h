// Augmentation steps that crop the image to a random window and keep the objects in it (Liu et al.,
// "SSD", ECCV 2016, section 2.2). Windows are drawn as TensorFlow's
// sample_distorted_bounding_box draws them.
//
// Thread rule: functions without shared state; the steps they make are thread-safe.
#ifndef PUSHPULL_WORKER_DATA_AUGMENT_CROP_STEPS_H_
#define PUSHPULL_WORKER_DATA_AUGMENT_CROP_STEPS_H_

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "worker/data/augment/augmentation_step.h"

namespace pushpull {

struct CropOptions {
  float min_object_covered = 1.0f;  // the window holds this share of at least one box's area
  float min_aspect_ratio = 0.75f;   // width / height of the window, in pixels
  float max_aspect_ratio = 1.33f;
  float min_area = 0.1f;  // area of the window as a share of the image's area
  float max_area = 1.0f;
  float overlap_thresh = 0.3f;  // a box is kept if the window holds this share of its area
  float random_coef = 0.0f;     // probability of not cropping the image
  bool clip_boxes = true;       // clip boxes to the window
};

// The image is first cropped, then padded. The ratios are multiples of the height and width of the
// image before the crop. They become PadSizes of the cropped image, where a maximum of 0 means
// twice its size.
struct CropPadOptions {
  CropOptions crop;
  std::array<float, 2> min_padded_size_ratio = {0.0f, 0.0f};  // height, width
  std::array<float, 2> max_padded_size_ratio = {0.0f, 0.0f};
  std::optional<std::array<float, 3>> pad_colour;  // 0..255; the mean of the image if not set
};

// Draws a window, in pixels, that holds enough of at least one box. Draws the aspect ratio
// uniformly, then the height uniformly from the heights that keep the area in range, then the
// position uniformly. Only the part of a box within the image counts, and a box whose part is
// smaller than one pixel does not count. An image without boxes counts as one box of its full size.
// Returns nullopt if 100 attempts found no window.
std::optional<PixelWindow> SampleCropWindow(const CropOptions& options, int height, int width,
                                            const std::vector<Box>& boxes, CounterRandom* random);

// Converts box edges from shares of the image (height x width pixels) to shares of the window.
// Drops boxes that do not overlap the window, and boxes of which the window holds less than
// overlap_thresh. Without clip_boxes the remaining boxes may reach outside the window.
void MoveBoxesIntoWindow(const CropOptions& options, int height, int width,
                         const PixelWindow& window, std::vector<Box>* boxes);

// The steps random_crop_image and ssd_random_crop. Each application draws one of the options
// uniformly. An image for which no window is found stays as it is.
std::unique_ptr<AugmentationStep> MakeRandomCrop(std::vector<CropOptions> options);
// The step ssd_random_crop_pad. Pads also the images that were not cropped.
std::unique_ptr<AugmentationStep> MakeRandomCropPad(std::vector<CropPadOptions> options);

// The step ssd_random_crop_fixed_aspect_ratio. Draws one of the options, whose aspect ratios are
// replaced by `aspect_ratio` (width / height, > 0), and crops as MakeRandomCrop does. Then crops
// the result, or the whole image if it was not cropped, to the largest window of that aspect ratio,
// at a uniformly drawn position; a box is kept if this window holds 0.3 of its area.
std::unique_ptr<AugmentationStep> MakeRandomCropFixedAspectRatio(std::vector<CropOptions> options,
                                                                 float aspect_ratio);

// The seven options that ssd_random_crop uses if the config lists no operations, with
// min_object_covered from 0 to 1.
std::vector<CropOptions> DefaultSsdCrops();
// The six options that ssd_random_crop_pad uses if the config lists no operations: those of
// DefaultSsdCrops but the first, each padded to one to two times the size of the image with its
// mean colour.
std::vector<CropPadOptions> DefaultSsdCropPads();

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENT_CROP_STEPS_H_
