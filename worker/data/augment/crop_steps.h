// Steps that cut a window out of the image and keep the objects in it (Liu et al., ECCV 2016,
// section 2.2), with TensorFlow's sampling.
#ifndef PUSHPULL_WORKER_DATA_AUGMENT_CROP_STEPS_H_
#define PUSHPULL_WORKER_DATA_AUGMENT_CROP_STEPS_H_

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "worker/data/augment/augmentation_step.h"

namespace pushpull {

struct CropOptions {
  float min_object_covered = 1.0f;  // of at least one box, as a share of its area
  float min_aspect_ratio = 0.75f;   // width / height of the window, in pixels
  float max_aspect_ratio = 1.33f;
  float min_area = 0.1f;  // of the window, as a share of the image
  float max_area = 1.0f;
  float overlap_thresh = 0.3f;  // a box stays if the window holds so much of it
  float random_coef = 0.0f;     // probability of leaving the image as it is
  bool clip_boxes = true;       // at the window's border
};

// The sizes of a padded image as multiples of the image before the crop.
struct CropPadOptions {
  CropOptions crop;
  std::array<float, 2> min_padded_size_ratio = {0.0f, 0.0f};  // height, width
  std::array<float, 2> max_padded_size_ratio = {0.0f, 0.0f};
  std::optional<std::array<float, 3>> pad_colour;
};

// A window that covers enough of a box, by up to a hundred attempts: aspect ratio uniform, height
// uniform among those that keep the area in its range, place uniform. nullopt: none was found.
// Without boxes the whole image stands for one.
std::optional<PixelWindow> SampleCropWindow(const CropOptions& options, int height, int width,
                                            const std::vector<Box>& boxes, CounterRandom* random);

// Boxes in the window's frame: those the window does not meet, and those of which it holds less
// than overlap_thresh, are dropped.
void MoveBoxesIntoWindow(const CropOptions& options, int height, int width,
                         const PixelWindow& window, std::vector<Box>* boxes);

// random_crop_image and ssd_random_crop: one of the options, uniformly.
std::unique_ptr<AugmentationStep> MakeRandomCrop(std::vector<CropOptions> options);
// ssd_random_crop_pad.
std::unique_ptr<AugmentationStep> MakeRandomCropPad(std::vector<CropPadOptions> options);

// What ssd_random_crop does without operations of its own: seven windows, from no to full cover.
std::vector<CropOptions> DefaultSsdCrops();

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENT_CROP_STEPS_H_
