#include "worker/eval/draw_boxes.h"

#include <stb/stb_easy_font.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"

namespace pushpull {
namespace {

using Color = std::array<uint8_t, 3>;

constexpr Color kBlack = {0, 0, 0};
constexpr Color kWhite = {255, 255, 255};
constexpr int kDash = 4;        // length in pixels of dashes and of the gaps between them
constexpr int kLine = 2;        // width in pixels of the frames of detections
constexpr int kTruthLine = 1;   // width in pixels of the frames of ground truth
constexpr int kTextHeight = 9;  // of stb_easy_font, in pixels, from the top of A to the bottom of g
constexpr int kGlyphQuads = 16;  // no character of stb_easy_font has more rectangles
constexpr int kMargin = 1;       // in pixels, around the text of a strip
constexpr int kStripHeight = kTextHeight + 2 * kMargin;

// A rectangle of pixels; `bottom` and `right` are excluded.
struct Area {
  int top;
  int left;
  int bottom;
  int right;

  bool empty() const { return top >= bottom || left >= right; }
};

class Canvas {
 public:
  explicit Canvas(Image* image) : image_(image) {}

  int height() const { return image_->height; }
  int width() const { return image_->width; }

  Area Clip(const Area& area) const {
    return {std::max(area.top, 0), std::max(area.left, 0), std::min(area.bottom, height()),
            std::min(area.right, width())};
  }

  // Dashes begin at the top left corner of `origin`.
  enum class Stroke { kSolid, kDashed };
  void Fill(const Area& area, const Color& color, Stroke stroke, const Area& origin) {
    const Area visible = Clip(area);
    for (int y = visible.top; y < visible.bottom; ++y) {
      for (int x = visible.left; x < visible.right; ++x) {
        const int along = y - origin.top + x - origin.left;
        if (stroke == Stroke::kDashed && along / kDash % 2 != 0) continue;
        std::copy(color.begin(), color.end(),
                  image_->pixels.begin() + (size_t{1} * y * width() + x) * 3);
      }
    }
  }
  void Fill(const Area& area, const Color& color) { Fill(area, color, Stroke::kSolid, area); }

  // The frame lies inside the area.
  void Frame(const Area& area, int line, const Color& color, Stroke stroke) {
    const int rows = std::min(line, area.bottom - area.top);
    const int columns = std::min(line, area.right - area.left);
    Fill({area.top, area.left, area.top + rows, area.right}, color, stroke, area);
    Fill({area.bottom - rows, area.left, area.bottom, area.right}, color, stroke, area);
    Fill({area.top, area.left, area.bottom, area.left + columns}, color, stroke, area);
    Fill({area.top, area.right - columns, area.bottom, area.right}, color, stroke, area);
  }

  // text: printable ASCII.
  void Text(int top, int left, absl::string_view text, const Color& color) {
    // The corners of a rectangle follow each other, so the first and the third are opposite.
    struct Corner {
      float x, y, z;
      uint8_t color[4];
    };
    for (const char character : text) {
      if (left >= width()) return;
      char glyph[] = {character, '\0'};
      Corner corners[kGlyphQuads][4];
      const int quads = stb_easy_font_print(0, 0, glyph, nullptr, corners, sizeof(corners));
      for (int i = 0; i < quads; ++i) {
        const auto edge = [](int origin, float pixels) {
          return origin + static_cast<int>(pixels);
        };
        const Corner& first = corners[i][0];
        const Corner& last = corners[i][2];
        Fill({edge(top, first.y), edge(left, first.x), edge(top, last.y), edge(left, last.x)},
             color);
      }
      left += stb_easy_font_width(glyph);
    }
  }

 private:
  Image* const image_;
};

bool IsFinite(const PixelBox& box) {
  return std::isfinite(box.ymin) && std::isfinite(box.xmin) && std::isfinite(box.ymax) &&
         std::isfinite(box.xmax);
}

// Returns all pixels that the box touches, at least one. Clamps edges far outside the image, so
// that they fit an int; they are still far outside.
Area AreaOf(const PixelBox& box) {
  const auto whole = [](float edge) {
    return static_cast<int>(std::clamp(edge, -1048576.0f, 1048576.0f));
  };
  Area area = {whole(std::floor(std::min(box.ymin, box.ymax))),
               whole(std::floor(std::min(box.xmin, box.xmax))),
               whole(std::ceil(std::max(box.ymin, box.ymax))),
               whole(std::ceil(std::max(box.xmin, box.xmax)))};
  area.bottom = std::max(area.bottom, area.top + 1);
  area.right = std::max(area.right, area.left + 1);
  return area;
}

// Returns the UTF-8 text with each character that the font does not have replaced by one '?'.
std::string PrintableText(absl::string_view text) {
  std::string printable;
  for (const char character : text) {
    if (absl::ascii_isprint(character)) {
      printable.push_back(character);
    } else if ((static_cast<uint8_t>(character) & 0xC0) != 0x80) {  // not a continuation byte
      printable.push_back('?');
    }
  }
  return printable;
}

// Returns the class's name, or its id in a label map if it has none, as the JSON of detect does.
std::string NameOf(int32_t label, const std::vector<std::string>& class_names) {
  const bool is_named =
      label >= 0 && label < static_cast<int32_t>(class_names.size()) && !class_names[label].empty();
  return is_named ? PrintableText(class_names[label]) : absl::StrCat(int64_t{label} + 1);
}

struct Strip {
  std::string text;
  Color text_color;
  Color background;
};

// Draws a strip of text with its top at `wanted` and its left edge at `left`, or as near to that as
// the image allows.
void DrawStrip(Strip strip, int wanted, int left, Canvas* canvas) {
  // The width of a character includes two blank pixels at its end. They make the side margins.
  const int width = stb_easy_font_width(strip.text.data());
  const int top = std::clamp(wanted, 0, std::max(0, canvas->height() - kStripHeight));
  left = std::clamp(left, 0, std::max(0, canvas->width() - width));
  canvas->Fill({top, left, top + kStripHeight, left + width}, strip.background);
  canvas->Text(top + kMargin, left + kMargin, strip.text, strip.text_color);
}

Image ToRgb(const Image& image) {
  if (image.channels == 3) return image;
  Image rgb{image.height, image.width, 3, {}};
  rgb.pixels.reserve(image.pixels.size() * 3);
  for (uint8_t value : image.pixels) rgb.pixels.insert(rgb.pixels.end(), 3, value);
  return rgb;
}

// Returns the detections to draw. The one with the highest score is last.
std::vector<const DetectedBox*> Select(const std::vector<DetectedBox>& detections,
                                       const DrawOptions& options) {
  std::vector<const DetectedBox*> selected;
  for (const DetectedBox& detection : detections) {
    if (detection.score >= options.min_score && IsFinite(detection.box)) {
      selected.push_back(&detection);
    }
  }
  std::stable_sort(selected.begin(), selected.end(),
                   [](const DetectedBox* a, const DetectedBox* b) { return a->score > b->score; });
  const size_t most = std::max(options.max_detections, 0);
  if (selected.size() > most) selected.resize(most);
  std::reverse(selected.begin(), selected.end());
  return selected;
}

}  // namespace

Color ClassColor(int32_t label) {
  // Steps of the golden ratio around the hue circle spread the hues evenly for any number of
  // labels.
  const double turn = label * 0.6180339887498949;
  const double hue = (turn - std::floor(turn)) * 6;
  const auto channel = [hue](double centre) {
    const double distance = std::abs(std::remainder(hue - centre, 6.0));
    return static_cast<uint8_t>(std::lround(255 - 210 * std::clamp(distance - 1, 0.0, 1.0)));
  };
  return {channel(0), channel(2), channel(4)};
}

Image DrawBoxes(const Image& image, const DetectionRecord& record,
                const std::vector<std::string>& class_names, const DrawOptions& options) {
  CHECK(image.channels == 1 || image.channels == 3) << image.channels;
  CHECK_EQ(image.pixels.size(), size_t{1} * image.height * image.width * image.channels);
  Image drawn = ToRgb(image);
  Canvas canvas(&drawn);
  for (const TruthBox& truth : record.ground_truth) {
    if (!IsFinite(truth.box)) continue;
    const Area area = AreaOf(truth.box);
    if (canvas.Clip(area).empty()) continue;
    const Color color = ClassColor(truth.label);
    canvas.Frame(area, kTruthLine, color, Canvas::Stroke::kDashed);
    const std::string text =
        absl::StrCat(NameOf(truth.label, class_names), truth.difficult ? " (difficult)" : "",
                     truth.is_crowd ? " (crowd)" : "", truth.is_group_of ? " (group)" : "");
    DrawStrip({text, color, kBlack}, area.bottom, area.left, &canvas);
  }
  for (const DetectedBox* detection : Select(record.detections, options)) {
    const Area area = AreaOf(detection->box);
    if (canvas.Clip(area).empty()) continue;
    const Color color = ClassColor(detection->label);
    canvas.Frame(area, kLine, color, Canvas::Stroke::kSolid);
    const std::string text = absl::StrFormat("%s: %.0f%%", NameOf(detection->label, class_names),
                                             100 * std::clamp(detection->score, 0.0f, 1.0f));
    const int luminance = 3 * color[0] + 6 * color[1] + color[2];  // 0 to 2550
    DrawStrip({text, luminance > 1280 ? kBlack : kWhite, color}, area.top - kStripHeight, area.left,
              &canvas);
  }
  return drawn;
}

}  // namespace pushpull
