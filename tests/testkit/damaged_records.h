// DamagedRecords is a TFRecord file that cannot be opened, for tests of stopping: opening it gives
// DATA_LOSS, unless it is stopped before it reads the first record.
#ifndef PUSHPULL_TESTS_TESTKIT_DAMAGED_RECORDS_H_
#define PUSHPULL_TESTS_TESTKIT_DAMAGED_RECORDS_H_

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/file_system.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// The file exists as long as the object. At most one object may exist in a process.
class DamagedRecords {
 public:
  DamagedRecords() : path_(absl::StrCat(testing::TempDir(), "/damaged_records_", getpid())) {
    // The checksum of the first record's length is wrong.
    EXPECT_TRUE(WriteFileAtomically(files_, path_, std::string(12, '\xff')).ok());
  }
  ~DamagedRecords() { EXPECT_TRUE(files_.RemoveFile(path_).ok()); }
  DamagedRecords(const DamagedRecords&) = delete;
  DamagedRecords& operator=(const DamagedRecords&) = delete;

  // Returns an input reader of the file.
  config::InputReader Reader() const {
    config::InputReader reader;
    reader.mutable_tf_record_input_reader()->add_input_path(path_);
    return reader;
  }

 private:
  PosixFileSystem files_;
  const std::string path_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_DAMAGED_RECORDS_H_
