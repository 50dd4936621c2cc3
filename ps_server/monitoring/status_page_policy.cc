// Tested by tests/ps_server/monitoring/monitoring_server_test.cc.
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/sha256.h"
#include "ps_server/monitoring/status_page.h"

namespace pushpull {
namespace {

// Returns the CSP source expression ('sha256-...') for the text between <tag> and </tag>.
std::string HashOf(absl::string_view page, absl::string_view tag) {
  const std::string open = absl::StrCat("<", tag, ">");
  const size_t begin = page.find(open);
  const size_t end = page.find(absl::StrCat("</", tag, ">"));
  CHECK(begin != absl::string_view::npos && end != absl::string_view::npos) << tag;
  const absl::string_view text = page.substr(begin + open.size(), end - begin - open.size());
  return absl::StrCat("'sha256-", absl::Base64Escape(absl::HexStringToBytes(Sha256Hex(text))), "'");
}

}  // namespace

std::string StatusPagePolicy(absl::string_view page) {
  return absl::StrCat("default-src 'none'; style-src ", HashOf(page, "style"), "; script-src ",
                      HashOf(page, "script"),
                      "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'");
}

}  // namespace pushpull
