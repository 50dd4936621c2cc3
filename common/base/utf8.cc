#include "common/base/utf8.h"

#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

namespace pushpull {
namespace {

// dump() throws on text that is not UTF-8 unless it has an error handler.
template <typename Json>
std::string Line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool IsContinuationByte(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

}  // namespace

std::string ValidUtf8(absl::string_view text) {
  return nlohmann::json::parse(JsonLine(nlohmann::json(std::string(text))));
}

bool IsUtf8(absl::string_view text) { return ValidUtf8(text) == text; }

std::string ShortUtf8(absl::string_view text, size_t max_bytes) {
  // ValidUtf8 makes no text shorter, so one more byte shows whether the text has to be cut. The
  // character that this cut may break is left out below.
  std::string valid = ValidUtf8(text.substr(0, max_bytes + 1));
  if (valid.size() <= max_bytes) return valid;
  size_t end = max_bytes - 3;
  while (end > 0 && IsContinuationByte(valid[end])) --end;
  valid.resize(end);
  return valid + "...";
}

absl::string_view WithoutByteOrderMark(absl::string_view text) {
  return absl::StripPrefix(text, "\xef\xbb\xbf");
}

std::string JsonLine(const nlohmann::json& value) { return Line(value); }
std::string JsonLine(const nlohmann::ordered_json& value) { return Line(value); }

}  // namespace pushpull
