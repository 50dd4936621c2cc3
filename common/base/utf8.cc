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

}  // namespace

std::string ValidUtf8(absl::string_view text) {
  return nlohmann::json::parse(JsonLine(nlohmann::json(std::string(text))));
}

absl::string_view WithoutByteOrderMark(absl::string_view text) {
  return absl::StripPrefix(text, "\xef\xbb\xbf");
}

std::string JsonLine(const nlohmann::json& value) { return Line(value); }
std::string JsonLine(const nlohmann::ordered_json& value) { return Line(value); }

}  // namespace pushpull
