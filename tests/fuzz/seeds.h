// Seeds for fuzzing: a few small, mostly valid inputs for each target.
#ifndef PUSHPULL_TESTS_FUZZ_SEEDS_H_
#define PUSHPULL_TESTS_FUZZ_SEEDS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pushpull {

// `golden` is the folder tests/golden. Aborts if a file in it cannot be read. Returns no seeds for
// an unknown target.
std::vector<std::string> MakeSeeds(absl::string_view target, const std::string& golden);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_FUZZ_SEEDS_H_
