// Converts a layout's variables to messages for GetJob and Register, and compares two lists of
// them, so that worker or server can name the first variable in which their models differ. Pure
// functions.
#ifndef PUSHPULL_COMMON_MODEL_VARIABLE_ENTRIES_H_
#define PUSHPULL_COMMON_MODEL_VARIABLE_ENTRIES_H_

#include <string>
#include <vector>

#include "common/model/variable_layout.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// Returns one entry per variable, in layout order.
std::vector<ps::VariableEntry> VariableEntries(const VariableLayout& layout);

// Returns "" if the two lists are equal. Otherwise returns a sentence that says which variable
// differs first and how, and sets *variable to its name.
std::string DescribeVariableDifference(const std::vector<ps::VariableEntry>& server,
                                       const std::vector<ps::VariableEntry>& worker,
                                       std::string* variable);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_VARIABLE_ENTRIES_H_
