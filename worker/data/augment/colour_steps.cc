// Tested by tests/worker/data/augment/augmentation_step_test.cc.
#include "worker/data/augment/colour_steps.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

namespace pushpull {
namespace {

float DrawBetween(float low, float high, CounterRandom* random) {
  return low + random->NextFloat() * (high - low);
}

struct Hsv {
  float hue = 0.0f;  // share of a full circle, [0, 1)
  float saturation = 0.0f;
  float value = 0.0f;
};

Hsv ToHsv(const float* rgb) {
  const float high = std::max({rgb[0], rgb[1], rgb[2]});
  const float low = std::min({rgb[0], rgb[1], rgb[2]});
  const float range = high - low;
  Hsv hsv{0.0f, high > 0.0f ? range / high : 0.0f, high};
  if (range <= 0.0f) return hsv;
  if (rgb[0] == high) {
    hsv.hue = (rgb[1] - rgb[2]) / range / 6.0f;
  } else if (rgb[1] == high) {
    hsv.hue = ((rgb[2] - rgb[0]) / range + 2.0f) / 6.0f;
  } else {
    hsv.hue = ((rgb[0] - rgb[1]) / range + 4.0f) / 6.0f;
  }
  if (hsv.hue < 0.0f) hsv.hue += 1.0f;
  return hsv;
}

void ToRgb(const Hsv& hsv, float* rgb) {
  const float chroma = hsv.saturation * hsv.value;
  const float low = hsv.value - chroma;
  for (int c = 0; c < 3; ++c) {
    // The distance, in sixths of the circle, to the hue of the pure channel: red is at 0, green at
    // 2 and blue at 4.
    float distance = std::abs(hsv.hue * 6.0f - 2.0f * static_cast<float>(c));
    distance = std::min(distance, 6.0f - distance);
    rgb[c] = low + chroma * std::clamp(2.0f - distance, 0.0f, 1.0f);
  }
}

void ClipToUnit(std::vector<float>* values) {
  for (float& value : *values) value = std::clamp(value, 0.0f, 1.0f);
}

// Scales the values of the image to [0, 1], changes them, clips them to [0, 1] and scales them
// back.
class ColourStep final : public AugmentationStep {
 public:
  using Change = std::function<void(CounterRandom*, int channels, std::vector<float>*)>;
  explicit ColourStep(Change change) : change_(std::move(change)) {}

  void Apply(CounterRandom* random, EditableImage* image, std::vector<Box>*) const override {
    std::vector<float>& values = image->Floats();
    for (float& value : values) value *= 1.0f / 255.0f;
    change_(random, image->channels(), &values);
    ClipToUnit(&values);
    for (float& value : values) value *= 255.0f;
  }

 private:
  const Change change_;
};

class RandomRgbToGray final : public AugmentationStep {
 public:
  explicit RandomRgbToGray(float probability) : probability_(probability) {}
  void Apply(CounterRandom* random, EditableImage* image, std::vector<Box>*) const override {
    if (random->NextFloat() < probability_ && image->channels() == 3) MakeGrey(&image->Floats());
  }

 private:
  const float probability_;
};

void DrawHue(float max_delta, CounterRandom* random, int channels, std::vector<float>* values) {
  const float delta = DrawBetween(-max_delta, max_delta, random);
  if (channels == 3) AdjustHue(delta, values);
}

void DrawSaturation(float low, float high, CounterRandom* random, int channels,
                    std::vector<float>* values) {
  const float factor = DrawBetween(low, high, random);
  if (channels == 3) AdjustSaturation(factor, values);
}

}  // namespace

void AdjustBrightness(float delta, std::vector<float>* values) {
  for (float& value : *values) value += delta;
}

void AdjustContrast(float factor, int channels, std::vector<float>* values) {
  const size_t count = values->size() / channels;
  for (int c = 0; c < channels; ++c) {
    double sum = 0.0;
    for (size_t i = 0; i < count; ++i) sum += (*values)[i * channels + c];
    const float mean = static_cast<float>(sum / static_cast<double>(count));
    for (size_t i = 0; i < count; ++i) {
      float& value = (*values)[i * channels + c];
      value = (value - mean) * factor + mean;
    }
  }
}

void AdjustHue(float delta, std::vector<float>* rgb) {
  for (size_t i = 0; i + 2 < rgb->size(); i += 3) {
    Hsv hsv = ToHsv(rgb->data() + i);
    hsv.hue += delta;
    hsv.hue -= std::floor(hsv.hue);
    ToRgb(hsv, rgb->data() + i);
  }
}

void AdjustSaturation(float factor, std::vector<float>* rgb) {
  for (size_t i = 0; i + 2 < rgb->size(); i += 3) {
    Hsv hsv = ToHsv(rgb->data() + i);
    hsv.saturation = std::clamp(hsv.saturation * factor, 0.0f, 1.0f);
    ToRgb(hsv, rgb->data() + i);
  }
}

void MakeGrey(std::vector<float>* rgb) {
  for (size_t i = 0; i + 2 < rgb->size(); i += 3) {
    float* const pixel = rgb->data() + i;
    pixel[0] = pixel[1] = pixel[2] = 0.2989f * pixel[0] + 0.5870f * pixel[1] + 0.1140f * pixel[2];
  }
}

std::unique_ptr<AugmentationStep> MakeRandomAdjustBrightness(float max_delta) {
  return std::make_unique<ColourStep>(
      [max_delta](CounterRandom* random, int, std::vector<float>* values) {
        AdjustBrightness(DrawBetween(-max_delta, max_delta, random), values);
      });
}

std::unique_ptr<AugmentationStep> MakeRandomAdjustContrast(float min_factor, float max_factor) {
  return std::make_unique<ColourStep>(
      [min_factor, max_factor](CounterRandom* random, int channels, std::vector<float>* values) {
        AdjustContrast(DrawBetween(min_factor, max_factor, random), channels, values);
      });
}

std::unique_ptr<AugmentationStep> MakeRandomAdjustHue(float max_delta) {
  return std::make_unique<ColourStep>(
      [max_delta](CounterRandom* random, int channels, std::vector<float>* values) {
        DrawHue(max_delta, random, channels, values);
      });
}

std::unique_ptr<AugmentationStep> MakeRandomAdjustSaturation(float min_factor, float max_factor) {
  return std::make_unique<ColourStep>(
      [min_factor, max_factor](CounterRandom* random, int channels, std::vector<float>* values) {
        DrawSaturation(min_factor, max_factor, random, channels, values);
      });
}

std::unique_ptr<AugmentationStep> MakeRandomDistortColor(int order) {
  return std::make_unique<ColourStep>(
      [order](CounterRandom* random, int channels, std::vector<float>* values) {
        AdjustBrightness(DrawBetween(-32.0f / 255.0f, 32.0f / 255.0f, random), values);
        ClipToUnit(values);
        const auto contrast = [&] {
          AdjustContrast(DrawBetween(0.5f, 1.5f, random), channels, values);
          ClipToUnit(values);
        };
        if (order == 1) contrast();
        DrawSaturation(0.5f, 1.5f, random, channels, values);
        ClipToUnit(values);
        DrawHue(0.2f, random, channels, values);
        ClipToUnit(values);
        if (order == 0) contrast();
      });
}

std::unique_ptr<AugmentationStep> MakeRandomPixelValueScale(float min_factor, float max_factor) {
  return std::make_unique<ColourStep>(
      [min_factor, max_factor](CounterRandom* random, int, std::vector<float>* values) {
        for (float& value : *values) value *= DrawBetween(min_factor, max_factor, random);
      });
}

std::unique_ptr<AugmentationStep> MakeRandomRgbToGray(float probability) {
  return std::make_unique<RandomRgbToGray>(probability);
}

}  // namespace pushpull
