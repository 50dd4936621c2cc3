// Text of unknown encoding for formats that hold only UTF-8: JSON, TensorBoard's event files,
// Prometheus' metrics, the strings of Protocol Buffers (a message with another string cannot be
// parsed). And the mark that some editors put before UTF-8.
#ifndef PUSHPULL_COMMON_BASE_UTF8_H_
#define PUSHPULL_COMMON_BASE_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace pushpull {

// Returns `text` with every sequence of bytes that is not valid UTF-8 replaced by U+FFFD.
std::string ValidUtf8(absl::string_view text);

// Returns whether `text` is valid UTF-8.
bool IsUtf8(absl::string_view text);

// Returns ValidUtf8(text), cut before a character so that it has at most `max_bytes` (> 3) bytes. A
// text that was cut ends with "...".
std::string ShortUtf8(absl::string_view text, size_t max_bytes);

// Returns `text` without the byte order mark at its beginning, if it has one. Files that people
// write are read in this way.
absl::string_view WithoutByteOrderMark(absl::string_view text);

// Returns the JSON text of a value in one line. Its strings may hold any bytes, such as names of
// files and classes; ValidUtf8 applies to them.
std::string JsonLine(const nlohmann::json& value);
std::string JsonLine(const nlohmann::ordered_json& value);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_UTF8_H_
