// Text of unknown encoding for formats that hold only UTF-8: JSON, TensorBoard's event files,
// Prometheus' metrics. And the mark that some editors put before UTF-8.
#ifndef PUSHPULL_COMMON_BASE_UTF8_H_
#define PUSHPULL_COMMON_BASE_UTF8_H_

#include <string>

#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace pushpull {

// Returns `text` with every sequence of bytes that is not valid UTF-8 replaced by U+FFFD.
std::string ValidUtf8(absl::string_view text);

// Returns `text` without the byte order mark at its beginning, if it has one. Files that people
// write are read in this way.
absl::string_view WithoutByteOrderMark(absl::string_view text);

// Returns the JSON text of a value in one line. Its strings may hold any bytes, such as names of
// files and classes; ValidUtf8 applies to them.
std::string JsonLine(const nlohmann::json& value);
std::string JsonLine(const nlohmann::ordered_json& value);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_UTF8_H_
