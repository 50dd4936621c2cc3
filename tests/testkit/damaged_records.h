// DamagedRecords is a TFRecord file that cannot be opened, for tests of stopping: opening it gives
// DATA_LOSS, unless it is stopped before it reads the first record.
#ifndef PUSHPULL_TESTS_TESTKIT_DAMAGED_RECORDS_H_
#define PUSHPULL_TESTS_TESTKIT_DAMAGED_RECORDS_H_

#include <string>

#include "protos/pipeline.pb.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {

// The file exists as long as the object.
class DamagedRecords {
 public:
  // Returns an input reader of the file.
  config::InputReader Reader() const {
    config::InputReader reader;
    reader.mutable_tf_record_input_reader()->add_input_path(path_);
    return reader;
  }

 private:
  const TestFolder folder_;
  // The checksum of the first record's length is wrong.
  const std::string path_ = folder_.Write("damaged.record", std::string(12, '\xff'));
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_DAMAGED_RECORDS_H_
