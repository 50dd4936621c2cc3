// Copies the environment variables of this process into a value, so that only main functions read
// the environment.
#ifndef PUSHPULL_COMMON_CLI_PROCESS_ENVIRONMENT_H_
#define PUSHPULL_COMMON_CLI_PROCESS_ENVIRONMENT_H_

#include <map>
#include <string>

namespace pushpull {

// Returns all variables by name. Call it on the main thread before other threads start.
std::map<std::string, std::string> ProcessEnvironment();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLI_PROCESS_ENVIRONMENT_H_
