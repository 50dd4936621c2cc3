// A bitmap font of 5 x 7 dots for labels on images. It has the printable ASCII characters.
//
// Thread rule: functions without shared state.
#ifndef PUSHPULL_WORKER_EVAL_BITMAP_FONT_H_
#define PUSHPULL_WORKER_EVAL_BITMAP_FONT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

inline constexpr int kGlyphWidth = 5;
inline constexpr int kGlyphHeight = 7;

// Whether the character has a dot at (row, column), with 0 <= row < kGlyphHeight from the top and
// 0 <= column < kGlyphWidth from the left. Characters that are not printable ASCII look like '?'.
bool GlyphDot(char character, int row, int column);

// Returns the UTF-8 text with each character that the font does not have replaced by one '?'.
std::string PrintableText(absl::string_view text);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_BITMAP_FONT_H_
