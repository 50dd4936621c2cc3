#include "worker/data/synthetic_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "worker/data/image_sources.h"
#include "worker/data/scene_source.h"
#include "worker/data/synthetic_shapes.h"

namespace pushpull {
namespace {

constexpr int kGrid = 2;  // coverage samples per pixel and axis
// In radians (12 degrees): small enough to tell horizontal from vertical bars, and the cross from
// the saltire.
constexpr float kMaxRotation = 0.21f;
constexpr float kMinRadius = 0.24f;  // of the shape, as a share of the smaller side
constexpr float kMaxRadius = 0.42f;
constexpr float kMinContrast = 70.0f;  // least difference in luminance of shape and background
constexpr float kNoise = 18.0f;        // noise is uniform in [-kNoise, kNoise]
constexpr float kGradient = 30.0f;     // largest change of the background from centre to edge
constexpr int kSpots = 4;              // number of small distracting spots behind the shape

using Color = std::array<float, 3>;

float Luminance(const Color& c) { return 0.299f * c[0] + 0.587f * c[1] + 0.114f * c[2]; }

Color DrawColor(int channels, CounterRandom* random) {
  Color color;
  for (float& value : color) value = 255.0f * random->NextFloat();
  if (channels == 1) color[1] = color[2] = color[0];
  return color;
}

// Draws a colour that stands out from `background`. After kTries random colours it returns black or
// white, of which one always stands out.
Color DrawContrast(const Color& background, int channels, CounterRandom* random) {
  constexpr int kTries = 16;
  for (int i = 0; i < kTries; ++i) {
    const Color color = DrawColor(channels, random);
    if (std::fabs(Luminance(color) - Luminance(background)) >= kMinContrast) return color;
  }
  const float value = Luminance(background) < 127.5f ? 255.0f : 0.0f;
  return {value, value, value};
}

struct Spot {
  float y, x, radius;
  Color color;
};

// All random properties of one image except the noise.
struct Scene {
  int shape = 0;
  float center_y = 0, center_x = 0, radius = 0, cosine = 1, sine = 0;
  float gradient_y = 0, gradient_x = 0;
  Color background, foreground;
  std::array<Spot, kSpots> spots;
};

Scene DrawScene(const SyntheticOptions& options, CounterRandom* random) {
  Scene scene;
  scene.shape = static_cast<int>(random->NextBelow(options.num_classes));
  const float height = static_cast<float>(options.height);
  const float width = static_cast<float>(options.width);
  const float side = std::min(height, width);
  scene.radius = side * (kMinRadius + (kMaxRadius - kMinRadius) * random->NextFloat());
  scene.center_y = scene.radius + (height - 2 * scene.radius) * random->NextFloat();
  scene.center_x = scene.radius + (width - 2 * scene.radius) * random->NextFloat();
  const float angle = kMaxRotation * (2 * random->NextFloat() - 1);
  scene.cosine = std::cos(angle);
  scene.sine = std::sin(angle);
  scene.background = DrawColor(options.num_channels, random);
  scene.foreground = DrawContrast(scene.background, options.num_channels, random);
  scene.gradient_y = kGradient * (2 * random->NextFloat() - 1);
  scene.gradient_x = kGradient * (2 * random->NextFloat() - 1);
  for (Spot& spot : scene.spots) {
    spot.y = height * random->NextFloat();
    spot.x = width * random->NextFloat();
    spot.radius = side * (0.02f + 0.04f * random->NextFloat());
    spot.color = DrawColor(options.num_channels, random);
  }
  return scene;
}

// Floats [height, width, channels].
using Canvas = std::vector<float>;

void PaintBackground(const SyntheticOptions& options, const Scene& scene, Canvas* canvas) {
  canvas->resize(size_t{1} * options.height * options.width * options.num_channels);
  float* out = canvas->data();
  const float step_y = 2 * scene.gradient_y / static_cast<float>(options.height);
  const float step_x = 2 * scene.gradient_x / static_cast<float>(options.width);
  for (int y = 0; y < options.height; ++y) {
    for (int x = 0; x < options.width; ++x) {
      const float slope = static_cast<float>(y) * step_y - scene.gradient_y +
                          static_cast<float>(x) * step_x - scene.gradient_x;
      for (int c = 0; c < options.num_channels; ++c) *out++ = scene.background[c] + slope;
    }
  }
}

// Calls paint(y, x, pixel) for each pixel of the canvas in the square around a point.
template <typename Paint>
void ForSquare(const SyntheticOptions& options, float center_y, float center_x, float radius,
               Canvas* canvas, Paint paint) {
  const int y_end = std::min(options.height, static_cast<int>(center_y + radius) + 1);
  const int x_end = std::min(options.width, static_cast<int>(center_x + radius) + 1);
  for (int y = std::max(0, static_cast<int>(center_y - radius)); y < y_end; ++y) {
    for (int x = std::max(0, static_cast<int>(center_x - radius)); x < x_end; ++x) {
      paint(y, x, canvas->data() + (int64_t{1} * y * options.width + x) * options.num_channels);
    }
  }
}

void PaintSpots(const SyntheticOptions& options, const Scene& scene, Canvas* canvas) {
  for (const Spot& spot : scene.spots) {
    ForSquare(options, spot.y, spot.x, spot.radius, canvas, [&](int y, int x, float* pixel) {
      const float dy = static_cast<float>(y) + 0.5f - spot.y;
      const float dx = static_cast<float>(x) + 0.5f - spot.x;
      if (dy * dy + dx * dx > spot.radius * spot.radius) return;
      std::copy_n(spot.color.begin(), options.num_channels, pixel);
    });
  }
}

// Returns the share of the pixel that the shape covers.
float Coverage(const Scene& scene, int y, int x) {
  const float cosine = scene.cosine / scene.radius;
  const float sine = scene.sine / scene.radius;
  int inside = 0;
  for (int i = 0; i < kGrid; ++i) {
    const float dy = static_cast<float>(y) + (i + 0.5f) / kGrid - scene.center_y;
    for (int j = 0; j < kGrid; ++j) {
      const float dx = static_cast<float>(x) + (j + 0.5f) / kGrid - scene.center_x;
      if (InsideShape(scene.shape, cosine * dx + sine * dy, cosine * dy - sine * dx)) ++inside;
    }
  }
  return static_cast<float>(inside) / (kGrid * kGrid);
}

// The rectangle of the pixels that a shape touches.
struct Extent {
  int y_begin, y_end, x_begin, x_end;
};

Extent PaintShape(const SyntheticOptions& options, const Scene& scene, Canvas* canvas) {
  Extent extent = {options.height, 0, options.width, 0};
  ForSquare(options, scene.center_y, scene.center_x, scene.radius, canvas,
            [&](int y, int x, float* pixel) {
              const float coverage = Coverage(scene, y, x);
              if (coverage == 0) return;
              extent = {std::min(extent.y_begin, y), std::max(extent.y_end, y + 1),
                        std::min(extent.x_begin, x), std::max(extent.x_end, x + 1)};
              for (int c = 0; c < options.num_channels; ++c) {
                pixel[c] += (scene.foreground[c] - pixel[c]) * coverage;
              }
            });
  return extent;
}

// Adds noise and rounds to bytes. Each random word gives the noise of four values.
void AddNoise(const Canvas& canvas, CounterRandom* random, std::vector<uint8_t>* pixels) {
  pixels->resize(canvas.size());
  uint32_t word = 0;
  for (size_t i = 0; i < canvas.size(); ++i) {
    word = i % 4 == 0 ? random->NextUint32() : word >> 8;
    const float noise = (static_cast<float>(word & 0xff) - 127.5f) * (kNoise / 127.5f);
    (*pixels)[i] = static_cast<uint8_t>(std::clamp(canvas[i] + noise + 0.5f, 0.0f, 255.0f));
  }
}

}  // namespace

std::vector<std::string> SyntheticSource::class_names() const {
  return SyntheticClassNames(options_.num_classes);
}

std::string SyntheticSource::describe() const {
  return absl::StrCat("synthetic shapes (seed ", options_.seed, "): ", size(), " images of ",
                      options_.height, " x ", options_.width, " x ", options_.num_channels, ", ",
                      num_classes(), " classes");
}

absl::Status SyntheticSource::Get(int64_t index, Example* example) const {
  CHECK_GE(index, 0);
  CHECK_LT(index, size());
  CounterRandom random(options_.seed ^ StableHash("synthetic"), static_cast<uint64_t>(index));
  const Scene scene = DrawScene(options_, &random);
  Canvas canvas;
  PaintBackground(options_, scene, &canvas);
  PaintSpots(options_, scene, &canvas);
  const Extent extent = PaintShape(options_, scene, &canvas);
  example->image.height = options_.height;
  example->image.width = options_.width;
  example->image.channels = options_.num_channels;
  AddNoise(canvas, &random, &example->image.pixels);
  example->label = scene.shape;
  const float height = static_cast<float>(options_.height);
  const float width = static_cast<float>(options_.width);
  example->boxes.assign(1, {extent.y_begin / height, extent.x_begin / width, extent.y_end / height,
                            extent.x_end / width, scene.shape});
  return absl::OkStatus();
}

absl::Status SyntheticSource::Check(ThreadPool*, StoppedFn) const { return absl::OkStatus(); }

namespace {

SourceOrError OpenScenes(const config::SyntheticInputReader& reader, const SourceOptions& options) {
  SceneOptions scenes;
  scenes.num_examples = reader.num_examples();
  scenes.seed = reader.seed();
  scenes.height = static_cast<int>(reader.height());
  scenes.width = static_cast<int>(reader.width());
  scenes.num_channels = static_cast<int>(reader.num_channels());
  scenes.max_objects = static_cast<int>(reader.max_objects());
  if (!reader.has_digits()) {
    return std::make_unique<SceneSource>(scenes, MakeShapeGlyphs(options.num_classes));
  }
  PP_ASSIGN_OR_RETURN(std::unique_ptr<ImageSource> glyphs, OpenSource(reader.digits(), options));
  Example glyph;
  PP_RETURN_IF_ERROR(glyphs->Get(0, &glyph));
  if (glyph.image.channels != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("synthetic_input_reader.digits: expected grey images, got ",
                     glyph.image.channels, " channels in ", glyphs->describe()));
  }
  return std::make_unique<SceneSource>(scenes, std::move(glyphs));
}

}  // namespace

SourceOrError OpenSource(const config::SyntheticInputReader& reader, const SourceOptions& options) {
  if (reader.has_digits() || reader.max_objects() > 1) return OpenScenes(reader, options);
  SyntheticOptions synthetic;
  synthetic.num_examples = reader.num_examples();
  synthetic.seed = reader.seed();
  synthetic.height = static_cast<int>(reader.height());
  synthetic.width = static_cast<int>(reader.width());
  synthetic.num_channels = static_cast<int>(reader.num_channels());
  synthetic.num_classes = options.num_classes;
  return std::make_unique<SyntheticSource>(synthetic);
}

}  // namespace pushpull
