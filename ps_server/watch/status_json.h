// /status.json: what the status page reads.
#ifndef PUSHPULL_PS_SERVER_WATCH_STATUS_JSON_H_
#define PUSHPULL_PS_SERVER_WATCH_STATUS_JSON_H_

#include <string>

#include "ps_server/watch/watcher.h"

namespace pushpull {

// One JSON object; a figure that is not known is null. Text of peers is cut to 200 bytes and may
// hold anything that JSON can: whoever shows it must not take it for markup.
std::string StatusJson(const WatchSnapshot& snapshot);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WATCH_STATUS_JSON_H_
