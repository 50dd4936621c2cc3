// StatusJson formats a monitoring snapshot as JSON, for /status.json, which the status page reads.
#ifndef PUSHPULL_PS_SERVER_MONITORING_STATUS_JSON_H_
#define PUSHPULL_PS_SERVER_MONITORING_STATUS_JSON_H_

#include <string>

#include "ps_server/monitoring/monitor.h"

namespace pushpull {

// Returns one JSON object. A value that is not known is null. Text that clones sent is cut to
// 200 bytes and may hold any character, so readers must not treat it as markup. Thread-safe.
std::string StatusJson(const MonitoringSnapshot& snapshot);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_STATUS_JSON_H_
