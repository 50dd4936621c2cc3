#include "worker/data/scene_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "worker/data/synthetic_shapes.h"

namespace pushpull {
namespace {

// The side of a drawn glyph, as a share of the scene's shorter side, is one of these three values
// times a factor from 0.85 to 1.15.
constexpr std::array<float, 3> kScales = {0.18f, 0.27f, 0.40f};
constexpr float kScaleJitter = 0.15f;
constexpr int kPlacingAttempts = 30;
constexpr float kSceneNoise = 12.0f;  // noise is uniform in [-kSceneNoise, kSceneNoise]
// The least difference of object and background per channel.
constexpr float kMinObjectContrast = 90.0f;
constexpr float kVisibleCover = 0.25f;  // pixels with a smaller covered share are not in the box

using Color = std::array<float, 3>;

Color DrawDarkOrLight(bool light, bool grey, CounterRandom* random) {
  Color color;
  for (float& value : color) {
    const float shade = (127.5f - kMinObjectContrast / 2) * random->NextFloat();
    value = light ? 255.0f - shade : shade;
  }
  if (grey) color[1] = color[2] = color[0];
  return color;
}

// Returns the glyph scaled bilinearly to side x side, with values 0 to 1.
std::vector<float> ScaleGlyph(const Image& glyph, int side) {
  std::vector<float> cover(size_t{1} * side * side);
  const auto at = [&glyph](int y, int x) {
    return static_cast<float>(glyph.pixels[size_t{1} * y * glyph.width + x]) / 255.0f;
  };
  for (int y = 0; y < side; ++y) {
    const float source_y = std::clamp((y + 0.5f) * glyph.height / side - 0.5f, 0.0f,
                                      static_cast<float>(glyph.height - 1));
    const int top = static_cast<int>(source_y);
    const int bottom = std::min(top + 1, glyph.height - 1);
    for (int x = 0; x < side; ++x) {
      const float source_x = std::clamp((x + 0.5f) * glyph.width / side - 0.5f, 0.0f,
                                        static_cast<float>(glyph.width - 1));
      const int left = static_cast<int>(source_x);
      const int right = std::min(left + 1, glyph.width - 1);
      const float fy = source_y - top;
      const float fx = source_x - left;
      cover[size_t{1} * y * side + x] =
          (at(top, left) * (1 - fx) + at(top, right) * fx) * (1 - fy) +
          (at(bottom, left) * (1 - fx) + at(bottom, right) * fx) * fy;
    }
  }
  return cover;
}

// The rectangle of the visible pixels of a scaled glyph.
struct CoverExtent {
  int y_begin, y_end, x_begin, x_end;
};

std::optional<CoverExtent> FindExtent(const std::vector<float>& cover, int side) {
  CoverExtent extent = {side, 0, side, 0};
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      if (cover[size_t{1} * y * side + x] < kVisibleCover) continue;
      extent = {std::min(extent.y_begin, y), std::max(extent.y_end, y + 1),
                std::min(extent.x_begin, x), std::max(extent.x_end, x + 1)};
    }
  }
  if (extent.y_end == 0) return std::nullopt;
  return extent;
}

bool Overlap(const Box& a, const Box& b) {
  return std::min(a.ymax, b.ymax) > std::max(a.ymin, b.ymin) &&
         std::min(a.xmax, b.xmax) > std::max(a.xmin, b.xmin);
}

// Paints a scene on a canvas of floats, [height, width, channels].
class ScenePainter {
 public:
  ScenePainter(const SceneOptions& options, CounterRandom* random)
      : options_(options), random_(*random) {
    light_objects_ = (random_.NextUint32() & 1) != 0;
    const Color background = DrawDarkOrLight(!light_objects_, grey(), &random_);
    canvas_.resize(size_t{1} * options.height * options.width * options.num_channels);
    for (size_t i = 0; i < canvas_.size(); ++i) {
      canvas_[i] = background[i % options.num_channels];
    }
  }

  // Draws the glyph at a random place where its box overlaps no other box, and adds the box. Does
  // nothing if kPlacingAttempts attempts find no such place.
  void Place(const Image& glyph, int32_t label, std::vector<Box>* boxes) {
    const float shorter = static_cast<float>(std::min(options_.height, options_.width));
    const float scale = kScales[random_.NextBelow(kScales.size())];
    const float jitter = 1.0f + kScaleJitter * (2.0f * random_.NextFloat() - 1.0f);
    const int side = std::max(8, static_cast<int>(shorter * scale * jitter));
    const Color color = DrawDarkOrLight(light_objects_, grey(), &random_);
    const std::vector<float> cover = ScaleGlyph(glyph, side);
    const std::optional<CoverExtent> extent = FindExtent(cover, side);
    if (!extent.has_value()) return;
    for (int attempt = 0; attempt < kPlacingAttempts; ++attempt) {
      const int y = static_cast<int>(random_.NextBelow(options_.height - side + 1));
      const int x = static_cast<int>(random_.NextBelow(options_.width - side + 1));
      Box box;
      box.ymin = static_cast<float>(y + extent->y_begin) / static_cast<float>(options_.height);
      box.ymax = static_cast<float>(y + extent->y_end) / static_cast<float>(options_.height);
      box.xmin = static_cast<float>(x + extent->x_begin) / static_cast<float>(options_.width);
      box.xmax = static_cast<float>(x + extent->x_end) / static_cast<float>(options_.width);
      box.label = label;
      const bool free = std::none_of(boxes->begin(), boxes->end(),
                                     [&box](const Box& other) { return Overlap(box, other); });
      if (!free) continue;
      Blend(cover, side, y, x, color);
      boxes->push_back(box);
      return;
    }
  }

  void Finish(Image* image) {
    image->height = options_.height;
    image->width = options_.width;
    image->channels = options_.num_channels;
    image->pixels.resize(canvas_.size());
    uint32_t word = 0;
    for (size_t i = 0; i < canvas_.size(); ++i) {
      word = i % 4 == 0 ? random_.NextUint32() : word >> 8;
      const float noise = (static_cast<float>(word & 0xff) - 127.5f) * (kSceneNoise / 127.5f);
      image->pixels[i] = static_cast<uint8_t>(std::clamp(canvas_[i] + noise + 0.5f, 0.0f, 255.0f));
    }
  }

 private:
  bool grey() const { return options_.num_channels == 1; }

  void Blend(const std::vector<float>& cover, int side, int y, int x, const Color& color) {
    for (int row = 0; row < side; ++row) {
      float* pixel =
          canvas_.data() + (int64_t{1} * (y + row) * options_.width + x) * options_.num_channels;
      for (int column = 0; column < side; ++column) {
        const float share = cover[size_t{1} * row * side + column];
        for (int c = 0; c < options_.num_channels; ++c, ++pixel) {
          *pixel += (color[c] - *pixel) * share;
        }
      }
    }
  }

  const SceneOptions& options_;
  CounterRandom& random_;
  bool light_objects_ = false;
  std::vector<float> canvas_;
};

// One grey image per shape.
class ShapeGlyphs final : public ImageSource {
 public:
  explicit ShapeGlyphs(int num_classes) : num_classes_(num_classes) {}
  int64_t size() const override { return num_classes_; }
  int num_classes() const override { return num_classes_; }
  std::vector<std::string> class_names() const override {
    return SyntheticClassNames(num_classes_);
  }
  std::string describe() const override { return absl::StrCat(num_classes_, " drawn shapes"); }
  absl::Status Check(ThreadPool*, StoppedFn) const override { return absl::OkStatus(); }

  absl::Status Get(int64_t index, Example* example) const override {
    constexpr int kSide = 96;
    CHECK(index >= 0 && index < num_classes_);
    example->label = static_cast<int32_t>(index);
    example->boxes.clear();
    Image& image = example->image;
    image.height = image.width = kSide;
    image.channels = 1;
    image.pixels.assign(size_t{1} * kSide * kSide, 0);
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) {
        const float v = (y + 0.5f) / (kSide / 2.0f) - 1.0f;
        const float u = (x + 0.5f) / (kSide / 2.0f) - 1.0f;
        if (InsideShape(example->label, u, v)) image.pixels[size_t{1} * y * kSide + x] = 255;
      }
    }
    return absl::OkStatus();
  }

 private:
  const int num_classes_;
};

}  // namespace

std::string SceneSource::describe() const {
  return absl::StrCat("synthetic scenes (seed ", options_.seed, "): ", size(), " images of ",
                      options_.height, " x ", options_.width, " x ", options_.num_channels,
                      " with 1 to ", options_.max_objects, " objects out of ", glyphs_->describe());
}

absl::Status SceneSource::Get(int64_t index, Example* example) const {
  CHECK(index >= 0 && index < size());
  CounterRandom random(options_.seed ^ StableHash("scene"), static_cast<uint64_t>(index));
  ScenePainter painter(options_, &random);
  example->boxes.clear();
  const int64_t objects = 1 + static_cast<int64_t>(random.NextBelow(options_.max_objects));
  Example glyph;
  for (int64_t i = 0; i < objects; ++i) {
    PP_RETURN_IF_ERROR(
        glyphs_->Get(static_cast<int64_t>(random.NextBelow(glyphs_->size())), &glyph));
    painter.Place(glyph.image, glyph.label, &example->boxes);
  }
  painter.Finish(&example->image);
  example->label = example->boxes.empty() ? 0 : example->boxes[0].label;
  return absl::OkStatus();
}

std::unique_ptr<ImageSource> MakeShapeGlyphs(int num_classes) {
  return std::make_unique<ShapeGlyphs>(num_classes);
}

}  // namespace pushpull
