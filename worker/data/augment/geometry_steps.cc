// Tested by tests/worker/data/augment/augmentation_step_test.cc.
#include "worker/data/augment/geometry_steps.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace pushpull {
namespace {

// Returns true with this probability. At 1/2 only the lowest bit of the word counts, as it did
// before the probability could be chosen: the images of an older run stay the same.
bool Draw(float probability, CounterRandom* random) {
  const double word = std::rotr(random->NextUint32(), 1);
  return word >= (1.0 - probability) * 0x1p32;
}

class RandomHorizontalFlip final : public AugmentationStep {
 public:
  explicit RandomHorizontalFlip(float probability) : probability_(probability) {}
  void Apply(CounterRandom* random, EditableImage* image, std::vector<Box>* boxes) const override {
    if (!Draw(probability_, random)) return;
    image->MirrorColumns();
    for (Box& box : *boxes) {
      const float xmin = box.xmin;
      box.xmin = 1.0f - box.xmax;
      box.xmax = 1.0f - xmin;
    }
  }

 private:
  const float probability_;
};

class RandomVerticalFlip final : public AugmentationStep {
 public:
  explicit RandomVerticalFlip(float probability) : probability_(probability) {}
  void Apply(CounterRandom* random, EditableImage* image, std::vector<Box>* boxes) const override {
    if (!Draw(probability_, random)) return;
    image->MirrorRows();
    for (Box& box : *boxes) {
      const float ymin = box.ymin;
      box.ymin = 1.0f - box.ymax;
      box.ymax = 1.0f - ymin;
    }
  }

 private:
  const float probability_;
};

class RandomRotation90 final : public AugmentationStep {
 public:
  explicit RandomRotation90(float probability) : probability_(probability) {}
  void Apply(CounterRandom* random, EditableImage* image, std::vector<Box>* boxes) const override {
    if (!Draw(probability_, random)) return;
    image->RotateCounterClockwise();
    for (Box& box : *boxes) {
      const Box before = box;
      box.ymin = 1.0f - before.xmax;
      box.ymax = 1.0f - before.xmin;
      box.xmin = before.ymin;
      box.xmax = before.ymax;
    }
  }

 private:
  const float probability_;
};

class RandomPadImage final : public AugmentationStep {
 public:
  RandomPadImage(const PadSizes& sizes, const std::optional<std::array<float, 3>>& colour)
      : sizes_(sizes), colour_(colour) {}
  void Apply(CounterRandom* random, EditableImage* image, std::vector<Box>* boxes) const override {
    PadRandomly(sizes_, colour_, random, image, boxes);
  }

 private:
  const PadSizes sizes_;
  const std::optional<std::array<float, 3>> colour_;
};

int DrawSize(int own, int minimum, int maximum, CounterRandom* random) {
  const int low = std::max(own, minimum);
  const int high = std::max(low, maximum == 0 ? 2 * own : maximum);
  return low + static_cast<int>(random->NextBelow(static_cast<uint64_t>(high - low) + 1));
}

}  // namespace

std::unique_ptr<AugmentationStep> MakeRandomHorizontalFlip(float probability) {
  return std::make_unique<RandomHorizontalFlip>(probability);
}

std::unique_ptr<AugmentationStep> MakeRandomVerticalFlip(float probability) {
  return std::make_unique<RandomVerticalFlip>(probability);
}

std::unique_ptr<AugmentationStep> MakeRandomRotation90(float probability) {
  return std::make_unique<RandomRotation90>(probability);
}

void PadRandomly(const PadSizes& sizes, const std::optional<std::array<float, 3>>& colour,
                 CounterRandom* random, EditableImage* image, std::vector<Box>* boxes) {
  const int height = image->height();
  const int width = image->width();
  const int new_height = DrawSize(height, sizes.min_height, sizes.max_height, random);
  const int new_width = DrawSize(width, sizes.min_width, sizes.max_width, random);
  const int y = static_cast<int>(random->NextBelow(static_cast<uint64_t>(new_height - height) + 1));
  const int x = static_cast<int>(random->NextBelow(static_cast<uint64_t>(new_width - width) + 1));
  image->Pad(new_height, new_width, y, x, colour.has_value() ? *colour : image->MeanColour());
  for (Box& box : *boxes) {
    box.ymin = (box.ymin * static_cast<float>(height) + y) / static_cast<float>(new_height);
    box.ymax = (box.ymax * static_cast<float>(height) + y) / static_cast<float>(new_height);
    box.xmin = (box.xmin * static_cast<float>(width) + x) / static_cast<float>(new_width);
    box.xmax = (box.xmax * static_cast<float>(width) + x) / static_cast<float>(new_width);
  }
}

std::unique_ptr<AugmentationStep> MakeRandomPadImage(
    const PadSizes& sizes, const std::optional<std::array<float, 3>>& colour) {
  return std::make_unique<RandomPadImage>(sizes, colour);
}

}  // namespace pushpull
