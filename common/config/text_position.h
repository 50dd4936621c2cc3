// Finds the field that surrounds a place in protobuf text, because the text parser's errors give
// line and column only.
#ifndef PUSHPULL_COMMON_CONFIG_TEXT_POSITION_H_
#define PUSHPULL_COMMON_CONFIG_TEXT_POSITION_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pushpull {

// Lines and columns count from 0, as the parser's do; a tab advances the column to the next
// multiple of 8, as in its tokenizer.
struct TextPoint {
  int line = 0;
  int column = 0;
};

struct TextPlace {
  // Names of the messages that are open at the place, outermost first: {"train_config",
  // "optimizer"}.
  std::vector<std::string> around;
  // The last name before the place, where it begins, and whether a colon and nothing else follows
  // it: then the place is the value of that field.
  std::string last_name;
  TextPoint last_name_begin;
  bool is_value_of_last_name = false;
};

// Walks over the text, token by token, and keeps the position. Strings and comments end where the
// tokenizer of the text parser ends them.
class TextCursor {
 public:
  explicit TextCursor(absl::string_view text) : text_(text) {}

  bool AtEnd() const { return i_ >= text_.size(); }
  bool IsBefore(TextPoint point) const;
  TextPoint point() const { return point_; }
  char Get() const { return text_[i_]; }

  void Next();
  void SkipComment();
  void SkipString();
  std::string TakeName();

 private:
  absl::string_view text_;
  size_t i_ = 0;
  TextPoint point_;
};

// Finds places in one text, which must outlive the object. Places in ascending order cost one walk
// over the text together; a step back begins again at the start of the text.
class TextPlaceFinder {
 public:
  explicit TextPlaceFinder(absl::string_view text) : text_(text), cursor_(text) {}

  // The reference is valid until the next call.
  const TextPlace& Find(TextPoint point);

 private:
  const absl::string_view text_;
  TextCursor cursor_;
  TextPlace place_;
};

// Returns the place where the text first nests braces and brackets of any kind more than
// `max_depth` deep, or nothing.
std::optional<TextPoint> FindDeeperThan(absl::string_view text, int max_depth);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_TEXT_POSITION_H_
