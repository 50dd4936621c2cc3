#include "common/base/utf8.h"

#include "nlohmann/json.hpp"

namespace pushpull {

std::string ValidUtf8(absl::string_view text) {
  using nlohmann::json;
  return json::parse(json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace));
}

std::string JsonLine(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace pushpull
