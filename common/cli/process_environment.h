// The environment variables of this process as a value, for mains to hand on.
#ifndef PUSHPULL_COMMON_CLI_PROCESS_ENVIRONMENT_H_
#define PUSHPULL_COMMON_CLI_PROCESS_ENVIRONMENT_H_

#include <map>
#include <string>

namespace pushpull {

// Main thread, before others start.
std::map<std::string, std::string> ProcessEnvironment();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLI_PROCESS_ENVIRONMENT_H_
