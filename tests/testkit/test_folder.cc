#include "tests/testkit/test_folder.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

namespace pushpull {

namespace fs = std::filesystem;

TestFolder::TestFolder() : path_(absl::StrCat(testing::TempDir(), "pushpull_test_XXXXXX")) {
  PCHECK(mkdtemp(path_.data()) != nullptr) << path_;
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TestFolder::Write(absl::string_view name, absl::string_view bytes) const {
  const std::string path = absl::StrCat(path_, "/", name);
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  CHECK(file.good()) << path;
  return path;
}

std::string TestFolder::MakeFolder(absl::string_view name) const {
  const std::string path = absl::StrCat(path_, "/", name);
  fs::create_directories(path);
  return path;
}

}  // namespace pushpull
