// ConfigProblem describes one error in a pipeline config or in the flags used with it. The
// functions turn a list of problems into a message. All functions are thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_CONFIG_PROBLEM_H_
#define PUSHPULL_COMMON_CONFIG_CONFIG_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull {

struct ConfigProblem {
  std::string field;           // "train_config.batch_size"
  std::string expected;        // "at least 1"
  std::string got;             // "0"
  std::string action;          // how the user can correct it; may be empty
  bool missing_input = false;  // the problem is a file or folder that does not exist
  // The problem is a file or folder about which the system gave an error that may pass
  // (common/base/passing_error.h).
  bool may_pass = false;
};

// Returns "FIELD: expected EXPECTED, got GOT; ACTION".
std::string ToString(const ConfigProblem& problem);

// A message lists at most this many problems and gives the number of the rest.
inline constexpr int kMaxListedProblems = 100;

// Returns the text that ends a list of `count` problems: a new line with the number of problems
// that are not listed, or nothing if all are.
std::string UnlistedProblems(int64_t count);

// Returns OK if `problems` is empty. Otherwise the message names `what` and the number of problems
// in its first line and lists one problem per line below. If all problems may pass, the code is
// UNAVAILABLE, and the status is marked as one that may pass. Of the others, the code is NOT_FOUND
// (exit code 66) if all are missing inputs, else INVALID_ARGUMENT (exit code 65).
absl::Status ProblemsToStatus(absl::string_view what, const std::vector<ConfigProblem>& problems);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_CONFIG_PROBLEM_H_
