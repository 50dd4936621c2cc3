// Tested by tests/common/config/validate_config_test.cc.
#include "common/config/config_problem.h"

#include "absl/strings/str_cat.h"

#include "common/base/passing_error.h"

namespace pushpull {

std::string ToString(const ConfigProblem& problem) {
  std::string text =
      absl::StrCat(problem.field, ": expected ", problem.expected, ", got ", problem.got);
  if (!problem.action.empty()) absl::StrAppend(&text, "; ", problem.action);
  return text;
}

std::string UnlistedProblems(int64_t count) {
  if (count <= kMaxListedProblems) return "";
  return absl::StrCat("\n  and ", count - kMaxListedProblems, " more");
}

absl::Status ProblemsToStatus(absl::string_view what, const std::vector<ConfigProblem>& problems) {
  if (problems.empty()) return absl::OkStatus();
  std::string text = absl::StrCat(what, " has ", problems.size(),
                                  problems.size() == 1 ? " problem:" : " problems:");
  bool only_missing_inputs = true;
  bool all_may_pass = true;
  int listed = 0;
  for (const ConfigProblem& problem : problems) {
    if (++listed <= kMaxListedProblems) absl::StrAppend(&text, "\n  ", ToString(problem));
    only_missing_inputs = only_missing_inputs && (problem.missing_input || problem.may_pass);
    all_may_pass = all_may_pass && problem.may_pass;
  }
  absl::StrAppend(&text, UnlistedProblems(static_cast<int64_t>(problems.size())));
  if (all_may_pass) return MarkPassing(absl::UnavailableError(text));
  return only_missing_inputs ? absl::NotFoundError(text) : absl::InvalidArgumentError(text);
}

}  // namespace pushpull
