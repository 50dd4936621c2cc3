// Tested by tests/e2e/kubernetes_test.py.
#include "common/cli/process_environment.h"

#include <unistd.h>

namespace pushpull {

std::map<std::string, std::string> ProcessEnvironment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

}  // namespace pushpull
