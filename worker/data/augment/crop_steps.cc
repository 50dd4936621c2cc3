// Tested by tests/worker/data/augment/augmentation_step_test.cc.
#include "worker/data/augment/crop_steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "worker/data/augment/geometry_steps.h"

namespace pushpull {
namespace {

constexpr int kAttempts = 100;
// The overlap_thresh of TensorFlow's random_crop_to_aspect_ratio.
constexpr float kFixedAspectOverlap = 0.3f;

// The edges of a box in pixels. Both areas below come from the same edges, so that they are equal,
// bit for bit, for a box that lies within the window.
struct PixelEdges {
  PixelEdges(int height, int width, const Box& box)
      : top(box.ymin * static_cast<float>(height)),
        bottom(box.ymax * static_cast<float>(height)),
        left(box.xmin * static_cast<float>(width)),
        right(box.xmax * static_cast<float>(width)) {}

  // Returns the area of the box in square pixels.
  float Area() const { return (bottom - top) * (right - left); }
  // Returns the area of the part of the box that lies in the window, in square pixels.
  float AreaWithin(const PixelWindow& window) const {
    const float rows = std::min(bottom, static_cast<float>(window.y + window.height)) -
                       std::max(top, static_cast<float>(window.y));
    const float columns = std::min(right, static_cast<float>(window.x + window.width)) -
                          std::max(left, static_cast<float>(window.x));
    return std::max(rows, 0.0f) * std::max(columns, 0.0f);
  }

  float top, bottom, left, right;
};

// Returns the parts of the boxes that lie within the image. A box outside it has no area then.
std::vector<Box> ClipToImage(std::vector<Box> boxes) {
  for (Box& box : boxes) {
    for (float* const edge : {&box.ymin, &box.xmin, &box.ymax, &box.xmax}) {
      *edge = std::clamp(*edge, 0.0f, 1.0f);
    }
  }
  return boxes;
}

// Expects boxes that do not reach out of the image.
bool CoversAnObject(const CropOptions& options, int height, int width,
                    const std::vector<Box>& boxes, const PixelWindow& window) {
  if (boxes.empty()) {
    const double share =
        static_cast<double>(window.height) * window.width / (static_cast<double>(height) * width);
    return share >= options.min_object_covered;
  }
  return std::any_of(boxes.begin(), boxes.end(), [&](const Box& box) {
    const PixelEdges edges(height, width, box);
    const float area = edges.Area();
    return area >= 1.0f && edges.AreaWithin(window) >= options.min_object_covered * area;
  });
}

// Makes one attempt. Returns nullopt if the drawn window does not fit.
std::optional<PixelWindow> DrawWindow(const CropOptions& options, int height, int width,
                                      CounterRandom* random) {
  const double pixels = static_cast<double>(height) * width;
  const double min_area = options.min_area * pixels;
  const double max_area = options.max_area * pixels;
  const double aspect = options.min_aspect_ratio +
                        random->NextFloat() * (options.max_aspect_ratio - options.min_aspect_ratio);
  const int lowest = static_cast<int>(std::lrint(std::sqrt(min_area / aspect)));
  int highest = static_cast<int>(std::lrint(std::sqrt(max_area / aspect)));
  if (std::lrint(highest * aspect) > width) {
    highest = static_cast<int>((width + 0.5 - 1e-7) / aspect);
  }
  highest = std::min(highest, height);
  PixelWindow window;
  window.height = std::min(lowest, highest);
  if (window.height < highest) {
    window.height +=
        static_cast<int>(random->NextBelow(static_cast<uint64_t>(highest - window.height) + 1));
  }
  const auto area = [&window, aspect] {
    window.width = static_cast<int>(std::lrint(window.height * aspect));
    return static_cast<double>(window.height) * window.width;
  };
  // Rounding may have moved the area out of its range.
  if (area() < min_area) ++window.height;
  if (area() > max_area) --window.height;
  const double drawn = area();
  if (drawn < min_area || drawn > max_area || window.height < 1 || window.width < 1 ||
      window.height > height || window.width > width) {
    return std::nullopt;
  }
  window.y = static_cast<int>(random->NextBelow(static_cast<uint64_t>(height - window.height) + 1));
  window.x = static_cast<int>(random->NextBelow(static_cast<uint64_t>(width - window.width) + 1));
  return window;
}

void CropRandomly(const CropOptions& options, CounterRandom* random, EditableImage* image,
                  std::vector<Box>* boxes) {
  if (!(random->NextFloat() > options.random_coef)) return;
  const std::optional<PixelWindow> window =
      SampleCropWindow(options, image->height(), image->width(), *boxes, random);
  if (!window.has_value()) return;
  MoveBoxesIntoWindow(options, image->height(), image->width(), *window, boxes);
  image->Crop(*window);
}

class RandomCrop final : public AugmentationStep {
 public:
  explicit RandomCrop(std::vector<CropOptions> options) : options_(std::move(options)) {}
  void Apply(CounterRandom* random, EditableImage* image, std::vector<Box>* boxes) const override {
    const uint64_t chosen = random->NextBelow(options_.size());
    CropRandomly(options_[chosen], random, image, boxes);
  }

 private:
  const std::vector<CropOptions> options_;
};

// Returns the size of the largest window of the aspect ratio (width / height) in an image. A side
// has at least one pixel.
PixelWindow LargestWindow(float aspect_ratio, int height, int width) {
  const float image_ratio = static_cast<float>(width) / static_cast<float>(height);
  PixelWindow window = {0, 0, height, width};
  if (image_ratio > aspect_ratio) {
    window.width = static_cast<int>(std::lrint(static_cast<float>(height) * aspect_ratio));
    window.width = std::clamp(window.width, 1, width);
  } else if (image_ratio < aspect_ratio) {
    window.height = static_cast<int>(std::lrint(static_cast<float>(width) / aspect_ratio));
    window.height = std::clamp(window.height, 1, height);
  }
  return window;
}

class RandomCropFixedAspectRatio final : public AugmentationStep {
 public:
  RandomCropFixedAspectRatio(std::vector<CropOptions> options, float aspect_ratio)
      : options_(std::move(options)), aspect_ratio_(aspect_ratio) {
    for (CropOptions& crop : options_) {
      crop.min_aspect_ratio = aspect_ratio;
      crop.max_aspect_ratio = aspect_ratio;
    }
  }
  void Apply(CounterRandom* random, EditableImage* image, std::vector<Box>* boxes) const override {
    CropOptions chosen = options_[random->NextBelow(options_.size())];
    CropRandomly(chosen, random, image, boxes);
    PixelWindow window = LargestWindow(aspect_ratio_, image->height(), image->width());
    window.y = static_cast<int>(
        random->NextBelow(static_cast<uint64_t>(image->height() - window.height) + 1));
    window.x = static_cast<int>(
        random->NextBelow(static_cast<uint64_t>(image->width() - window.width) + 1));
    chosen.overlap_thresh = kFixedAspectOverlap;
    MoveBoxesIntoWindow(chosen, image->height(), image->width(), window, boxes);
    image->Crop(window);
  }

 private:
  std::vector<CropOptions> options_;
  const float aspect_ratio_;
};

class RandomCropPad final : public AugmentationStep {
 public:
  explicit RandomCropPad(std::vector<CropPadOptions> options) : options_(std::move(options)) {}
  void Apply(CounterRandom* random, EditableImage* image, std::vector<Box>* boxes) const override {
    const CropPadOptions& chosen = options_[random->NextBelow(options_.size())];
    const float height = static_cast<float>(image->height());
    const float width = static_cast<float>(image->width());
    CropRandomly(chosen.crop, random, image, boxes);
    PadSizes sizes;
    sizes.min_height = static_cast<int>(height * chosen.min_padded_size_ratio[0]);
    sizes.min_width = static_cast<int>(width * chosen.min_padded_size_ratio[1]);
    // PadRandomly takes 0 for twice the image's own side.
    sizes.max_height = std::max(1, static_cast<int>(height * chosen.max_padded_size_ratio[0]));
    sizes.max_width = std::max(1, static_cast<int>(width * chosen.max_padded_size_ratio[1]));
    PadRandomly(sizes, chosen.pad_colour, random, image, boxes);
  }

 private:
  const std::vector<CropPadOptions> options_;
};

}  // namespace

std::optional<PixelWindow> SampleCropWindow(const CropOptions& options, int height, int width,
                                            const std::vector<Box>& boxes, CounterRandom* random) {
  // An earlier step without clip_boxes leaves boxes that reach out of the image. No window can
  // cover what lies outside, so it does not count.
  const std::vector<Box> visible = ClipToImage(boxes);
  for (int i = 0; i < kAttempts; ++i) {
    const std::optional<PixelWindow> window = DrawWindow(options, height, width, random);
    if (window.has_value() && CoversAnObject(options, height, width, visible, *window)) {
      return window;
    }
  }
  return std::nullopt;
}

void MoveBoxesIntoWindow(const CropOptions& options, int height, int width,
                         const PixelWindow& window, std::vector<Box>* boxes) {
  std::vector<Box> kept;
  const float window_height = static_cast<float>(window.height);
  const float window_width = static_cast<float>(window.width);
  for (Box box : *boxes) {
    const PixelEdges edges(height, width, box);
    const float shared = edges.AreaWithin(window);
    if (shared <= 0.0f || shared < options.overlap_thresh * edges.Area()) continue;
    box.ymin = (box.ymin * static_cast<float>(height) - window.y) / window_height;
    box.ymax = (box.ymax * static_cast<float>(height) - window.y) / window_height;
    box.xmin = (box.xmin * static_cast<float>(width) - window.x) / window_width;
    box.xmax = (box.xmax * static_cast<float>(width) - window.x) / window_width;
    if (options.clip_boxes) {
      box.ymin = std::clamp(box.ymin, 0.0f, 1.0f);
      box.ymax = std::clamp(box.ymax, 0.0f, 1.0f);
      box.xmin = std::clamp(box.xmin, 0.0f, 1.0f);
      box.xmax = std::clamp(box.xmax, 0.0f, 1.0f);
    }
    kept.push_back(box);
  }
  *boxes = std::move(kept);
}

std::unique_ptr<AugmentationStep> MakeRandomCrop(std::vector<CropOptions> options) {
  return std::make_unique<RandomCrop>(std::move(options));
}

std::unique_ptr<AugmentationStep> MakeRandomCropFixedAspectRatio(std::vector<CropOptions> options,
                                                                 float aspect_ratio) {
  return std::make_unique<RandomCropFixedAspectRatio>(std::move(options), aspect_ratio);
}

std::unique_ptr<AugmentationStep> MakeRandomCropPad(std::vector<CropPadOptions> options) {
  return std::make_unique<RandomCropPad>(std::move(options));
}

std::vector<CropOptions> DefaultSsdCrops() {
  std::vector<CropOptions> crops;
  for (const float covered : {0.0f, 0.1f, 0.3f, 0.5f, 0.7f, 0.9f, 1.0f}) {
    CropOptions crop;
    crop.min_object_covered = covered;
    crop.overlap_thresh = covered;
    crop.min_aspect_ratio = 0.5f;
    crop.max_aspect_ratio = 2.0f;
    crop.random_coef = 0.15f;
    crops.push_back(crop);
  }
  return crops;
}

std::vector<CropPadOptions> DefaultSsdCropPads() {
  std::vector<CropPadOptions> result;
  std::vector<CropOptions> crops = DefaultSsdCrops();
  crops.erase(crops.begin());
  for (const CropOptions& crop : crops) {
    CropPadOptions& options = result.emplace_back();
    options.crop = crop;
    options.min_padded_size_ratio = {1.0f, 1.0f};
    options.max_padded_size_ratio = {2.0f, 2.0f};
  }
  return result;
}

}  // namespace pushpull
