// Tested by tests/common/config/pipeline_config_test.cc.
#include "common/config/text_position.h"

#include "absl/strings/ascii.h"

namespace pushpull {
namespace {

bool IsBefore(TextPoint a, TextPoint b) {
  return a.line < b.line || (a.line == b.line && a.column < b.column);
}

bool Opens(char c) { return c == '{' || c == '<'; }
bool Closes(char c) { return c == '}' || c == '>'; }
bool BeginsString(char c) { return c == '"' || c == '\''; }

}  // namespace

bool TextCursor::IsBefore(TextPoint point) const {
  return !AtEnd() && pushpull::IsBefore(point_, point);
}

void TextCursor::Next() {
  if (text_[i_] == '\n') {
    ++point_.line;
    point_.column = 0;
  } else {
    point_.column += text_[i_] == '\t' ? 8 - point_.column % 8 : 1;
  }
  ++i_;
}

void TextCursor::SkipComment() {
  while (!AtEnd() && Get() != '\n') Next();
}

void TextCursor::SkipString() {
  const char quote = Get();
  for (Next(); !AtEnd() && Get() != quote && Get() != '\n'; Next()) {
    // The end of a line ends the string, even after a backslash.
    if (Get() == '\\' && i_ + 1 < text_.size() && text_[i_ + 1] != '\n') Next();
  }
  if (!AtEnd()) Next();
}

std::string TextCursor::TakeName() {
  const size_t begin = i_;
  while (!AtEnd() && (absl::ascii_isalnum(Get()) || Get() == '_')) Next();
  return std::string(text_.substr(begin, i_ - begin));
}

const TextPlace& TextPlaceFinder::Find(TextPoint point) {
  if (IsBefore(point, cursor_.point())) {
    cursor_ = TextCursor(text_);
    place_ = TextPlace();
  }
  while (cursor_.IsBefore(point)) {
    const char c = cursor_.Get();
    if (c == '#') {
      cursor_.SkipComment();
    } else if (BeginsString(c)) {
      cursor_.SkipString();
      place_.is_value_of_last_name = false;
    } else if (absl::ascii_isalpha(c) || c == '_') {
      place_.last_name_begin = cursor_.point();
      place_.last_name = cursor_.TakeName();
      place_.is_value_of_last_name = false;
    } else {
      if (Opens(c)) place_.around.push_back(place_.last_name);
      if (Closes(c) && !place_.around.empty()) {
        // The next element of a list is a message of the same field.
        place_.last_name = place_.around.back();
        place_.around.pop_back();
      }
      if (!absl::ascii_isspace(c)) place_.is_value_of_last_name = c == ':';
      cursor_.Next();
    }
  }
  return place_;
}

std::optional<TextPoint> FindDeeperThan(absl::string_view text, int max_depth) {
  int depth = 0;
  for (TextCursor cursor(text); !cursor.AtEnd();) {
    const char c = cursor.Get();
    if (c == '#') {
      cursor.SkipComment();
    } else if (BeginsString(c)) {
      cursor.SkipString();
    } else {
      if ((Opens(c) || c == '[') && ++depth > max_depth) return cursor.point();
      if ((Closes(c) || c == ']') && depth > 0) --depth;
      cursor.Next();
    }
  }
  return std::nullopt;
}

}  // namespace pushpull
