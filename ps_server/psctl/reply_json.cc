// Tested by tests/ps_server/psctl/command_test.cc.
#include "ps_server/psctl/reply_json.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "common/base/utf8.h"

namespace pushpull {

absl::StatusOr<std::string> ReplyToJson(const google::protobuf::Message& reply) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(reply, &text, options);
  if (!printed.ok()) {
    return absl::InternalError(
        absl::StrCat("the reply cannot be written as JSON: ", printed.ToString()));
  }
  // ordered_json keeps the order of the fields.
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (json.is_discarded()) return absl::InternalError("the answer's JSON does not parse");
  if (json.contains("run_id")) {
    std::string bytes;
    absl::Base64Unescape(json["run_id"].get<std::string>(), &bytes);
    json["run_id"] = absl::BytesToHexString(bytes);
  }
  return JsonLine(json) + "\n";
}

}  // namespace pushpull
