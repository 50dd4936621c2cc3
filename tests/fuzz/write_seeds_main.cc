// Usage: write_seeds TARGET GOLDEN FOLDER. Writes the seeds of a fuzz target into an existing
// folder.
#include <cstdio>

#include "absl/strings/str_cat.h"

#include "common/base/file_system.h"
#include "tests/fuzz/seeds.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: write_seeds TARGET GOLDEN FOLDER\n");
    return 64;
  }
  const std::vector<std::string> seeds = pushpull::MakeSeeds(argv[1], argv[2]);
  if (seeds.empty()) {
    std::fprintf(stderr, "write_seeds: there is no target %s\n", argv[1]);
    return 64;
  }
  pushpull::PosixFileSystem files;
  for (size_t i = 0; i < seeds.size(); ++i) {
    const std::string path = pushpull::JoinPath(argv[3], absl::StrCat("seed-", i));
    const absl::Status status = pushpull::WriteFileAtomically(files, path, seeds[i]);
    if (!status.ok()) {
      std::fprintf(stderr, "write_seeds: %s\n", status.ToString().c_str());
      return 1;
    }
  }
  return 0;
}
