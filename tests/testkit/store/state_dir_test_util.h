// Helpers for tests of state files: a temporary folder, stores in it, and versions whose contents
// identify them.
#ifndef PUSHPULL_TESTS_TESTKIT_STORE_STATE_DIR_TEST_UTIL_H_
#define PUSHPULL_TESTS_TESTKIT_STORE_STATE_DIR_TEST_UTIL_H_

#include <memory>
#include <string>

#include "gtest/gtest.h"

#include "common/base/file_system.h"
#include "ps_server/store/variable_store.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {

class TestStateDir {
 public:
  const std::string& path() const { return folder_.path(); }
  std::string file() const { return path() + "/state"; }
  // Returns the options of a store whose state file is file().
  VariableStoreOptions options() const;

 private:
  const TestFolder folder_;
};

// A folder for state files, and stores in it.
class StateDirTest : public ::testing::Test {
 protected:
  // The stores have one variable of 3000 elements and the optimizer momentum.
  StateDirTest();
  StateDirTest(const VariableLayout& layout, const OptimizerSpec& optimizer);

  // Ends the process if the store cannot be opened.
  std::unique_ptr<VariableStore> Open(const VariableStoreOptions& options);
  // Returns the options of a store whose state file has this name, and whose owner's train_dir is
  // TrainDir(run), which it makes.
  VariableStoreOptions OptionsOf(const std::string& name, const std::string& run);
  std::string TrainDir(const std::string& run) const { return folders_.path() + "/" + run; }

  const VariableLayout layout_;
  const OptimizerSpec optimizer_;
  const TestStateDir dir_;
  const TestFolder folders_;  // holds the train_dirs
  PosixFileSystem files_;
};

// Fills a version with known contents and adopts the store's file. Every element of vector k
// (weights, slots, EMA) of version v is v + 1000 * k.
void FillVersion(VariableStore* store, uint64_t version, uint64_t epoch,
                 absl::string_view metadata);
// Makes the next version in the same way through BeginApply. Returns false if that fails or if the
// version it starts from has wrong contents.
bool ApplyVersion(VariableStore* store, uint64_t epoch, absl::string_view metadata);
// Writes the first `elements` of every vector of a version.
void WriteContents(const VariableStore& store, uint64_t version, const StateVectors& to,
                   int64_t elements);
// Returns "" or describes the first element that differs from what FillVersion or ApplyVersion
// wrote.
std::string DescribeContents(const VariableStore& store, const PinnedVersion& pinned);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_STORE_STATE_DIR_TEST_UTIL_H_
