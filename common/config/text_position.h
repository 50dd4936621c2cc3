// Finds the field at a place in protobuf text. The errors of protobuf's text parser give only a
// line and a column; Pushpull's messages name the field too.
#ifndef PUSHPULL_COMMON_CONFIG_TEXT_POSITION_H_
#define PUSHPULL_COMMON_CONFIG_TEXT_POSITION_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pushpull {

// A place in a text. Lines and columns count from 0, and a tab advances the column to the next
// multiple of 8, as in protobuf's tokenizer.
struct TextPoint {
  int line = 0;
  int column = 0;
};

// The fields around a place.
struct TextPlace {
  // Names of the messages that are open at the place, outermost first: {"train_config",
  // "optimizer"}.
  std::vector<std::string> around;
  // The last name before the place and where it begins. If only a colon stands between the name and
  // the place, the place is the value of that field.
  std::string last_name;
  TextPoint last_name_begin;
  bool is_value_of_last_name = false;
};

// Walks over a text and keeps track of the position. The text must outlive the cursor. The cursor
// ends strings and comments where protobuf's tokenizer ends them. Not thread-safe.
class TextCursor {
 public:
  explicit TextCursor(absl::string_view text) : text_(text) {}

  bool AtEnd() const { return i_ >= text_.size(); }
  // Returns false at the end of the text too.
  bool IsBefore(TextPoint point) const;
  TextPoint point() const { return point_; }

  // The rest requires !AtEnd().
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

// Finds places in one text, which must outlive the object. Calls with ascending places together
// take one walk over the text. A call with an earlier place starts again at the beginning. Not
// thread-safe.
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

// Returns the first place where {}, <> and [] are nested more than `max_depth` deep, or nothing if
// there is none.
std::optional<TextPoint> FindDeeperThan(absl::string_view text, int max_depth);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_TEXT_POSITION_H_
