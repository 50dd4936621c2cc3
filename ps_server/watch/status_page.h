// The status page: status_page.html, which the build puts into the program.
#ifndef PUSHPULL_PS_SERVER_WATCH_STATUS_PAGE_H_
#define PUSHPULL_PS_SERVER_WATCH_STATUS_PAGE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

// One HTML document that needs nothing else but /status.json. Valid for ever.
absl::string_view StatusPage();

// The Content-Security-Policy under which the page works and nothing more does: its own style and
// script by their hashes, requests to its own server.
std::string StatusPagePolicy(absl::string_view page);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WATCH_STATUS_PAGE_H_
