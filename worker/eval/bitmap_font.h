// A font of 5 x 7 dots for labels on images: printable ASCII.
//
// Thread rule: pure functions.
#ifndef PUSHPULL_WORKER_EVAL_BITMAP_FONT_H_
#define PUSHPULL_WORKER_EVAL_BITMAP_FONT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

inline constexpr int kGlyphWidth = 5;
inline constexpr int kGlyphHeight = 7;

// Whether the dot is set, 0 <= row < 7 from the top, 0 <= column < 5 from the left. Characters that
// are not printable ASCII look like '?'.
bool GlyphDot(char character, int row, int column);

// UTF-8 text in characters that the font has: each other character becomes one '?'.
std::string PrintableText(absl::string_view text);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_BITMAP_FONT_H_
