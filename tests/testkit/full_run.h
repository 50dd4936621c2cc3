// Whether tests that have a long form shall run it.
#ifndef PUSHPULL_TESTS_TESTKIT_FULL_RUN_H_
#define PUSHPULL_TESTS_TESTKIT_FULL_RUN_H_

#include <cstdlib>

#include "absl/strings/string_view.h"

namespace pushpull {

// scripts/test.sh --full sets PUSHPULL_TEST_FULL=1.
inline bool IsFullRun() {
  const char* const value = std::getenv("PUSHPULL_TEST_FULL");
  return value != nullptr && absl::string_view(value) == "1";
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_FULL_RUN_H_
