// One thing wrong with a pipeline config or with flags that go with it, and how a list of them is
// shown.
#ifndef PUSHPULL_COMMON_CONFIG_CONFIG_PROBLEM_H_
#define PUSHPULL_COMMON_CONFIG_CONFIG_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull {

struct ConfigProblem {
  std::string field;           // "train_config.batch_size", or a place "FILE:12:3" and the field
  std::string expected;        // "at least 1"
  std::string got;             // "0"
  std::string action;          // what to do; may be empty
  bool missing_input = false;  // a file or folder that does not exist
};

// "train_config.batch_size: expected at least 1, got 0; ..."
std::string ToString(const ConfigProblem& problem);

// No message lists more problems than these; the others are counted.
inline constexpr int kMaxListedProblems = 100;

// The line that follows the listed ones of `count` problems; empty if all are listed.
std::string UnlistedProblems(int64_t count);

// OK if there are none. Otherwise one message that lists them, one per line, under a first line
// that names `what` and counts them: NOT_FOUND if all are missing inputs (exit code 66), else
// INVALID_ARGUMENT (65).
absl::Status ProblemsToStatus(absl::string_view what, const std::vector<ConfigProblem>& problems);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_CONFIG_PROBLEM_H_
