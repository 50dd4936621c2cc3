// A folder for state files and versions whose contents say which version they are.
#ifndef PUSHPULL_TESTS_PS_SERVER_STORE_STATE_DIR_TEST_UTIL_H_
#define PUSHPULL_TESTS_PS_SERVER_STORE_STATE_DIR_TEST_UTIL_H_

#include <string>

#include "ps_server/store/variable_store.h"

namespace pushpull {

// Made on construction, removed on destruction.
class TestStateDir {
 public:
  TestStateDir();
  ~TestStateDir();
  TestStateDir(const TestStateDir&) = delete;
  TestStateDir& operator=(const TestStateDir&) = delete;

  const std::string& path() const { return path_; }
  std::string file() const { return path_ + "/state"; }
  // Options of a store in file().
  VariableStoreOptions options() const;

 private:
  std::string path_;
};

// Element i of vector k (weights, slots, EMA) of version v is v + 1000 * k. Adopts the store's
// file.
void FillVersion(VariableStore* store, uint64_t version, uint64_t epoch,
                 absl::string_view metadata);
// The same for the next version, through BeginApply; false when that fails or when the version it
// starts from does not hold what it should.
bool ApplyVersion(VariableStore* store, uint64_t epoch, absl::string_view metadata);
// Writes the first `elements` of every vector of a version.
void WriteContents(const VariableStore& store, uint64_t version, const StateVectors& to,
                   int64_t elements);
// Empty, or the first element that is not what FillVersion or ApplyVersion wrote.
std::string DescribeContents(const VariableStore& store, const PinnedVersion& pinned);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_PS_SERVER_STORE_STATE_DIR_TEST_UTIL_H_
