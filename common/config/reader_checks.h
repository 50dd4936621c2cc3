// Checks the values of train_input_reader and eval_input_reader. Thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_READER_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_READER_CHECKS_H_

#include <string>

#include "common/config/field_checker.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// The number of shapes that a synthetic_input_reader without digits can draw.
inline constexpr int kMaxSyntheticClasses = 12;

// How CheckReader looks for the files of a reader.
struct ReaderFiles {
  bool must_exist = false;  // whether the files must exist on this machine
  std::string data_dir;     // the prefix of relative paths; empty: the working directory
};

// Adds every problem to `checker` for which no data set could be opened or would not fit `model`:
// missing paths, values out of range, and a reader without the annotation that the model learns
// from. `field` is the path of `reader` from the top of the config. Most of it is said by options
// in protos/pipeline.proto, so that a new reader needs no code here. TFRecords, which may be given
// by patterns, are looked for when they are opened.
void CheckReader(const config::InputReader& reader, const std::string& field,
                 const config::DetectionModel& model, const ReaderFiles& files,
                 FieldChecker* checker);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_READER_CHECKS_H_
