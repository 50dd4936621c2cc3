// StatusPage returns the status page: status_page.html, which the build embeds in the program.
#ifndef PUSHPULL_PS_SERVER_MONITORING_STATUS_PAGE_H_
#define PUSHPULL_PS_SERVER_MONITORING_STATUS_PAGE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

// One HTML document that loads nothing but /status.json. The view is valid as long as the
// process runs.
absl::string_view StatusPage();

// Returns the strictest Content-Security-Policy with which `page` works. It allows the style and
// the script of the page, by their hashes, and requests to the server of the page.
std::string StatusPagePolicy(absl::string_view page);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_STATUS_PAGE_H_
