// A temporary folder for a test.
#ifndef PUSHPULL_TESTS_TESTKIT_TEST_FOLDER_H_
#define PUSHPULL_TESTS_TESTKIT_TEST_FOLDER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

// The constructor makes the folder, and the destructor removes it with everything in it. Any
// failure to make or to write a file ends the process. Thread-safe.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  // Writes path()/name and makes missing parent folders. Returns the full path.
  std::string Write(absl::string_view name, absl::string_view bytes) const;
  // Makes path()/name and missing parent folders. Returns the full path.
  std::string MakeFolder(absl::string_view name) const;

 private:
  std::string path_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_TEST_FOLDER_H_
