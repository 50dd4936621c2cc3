// Reads checkpoints of other programs whole, for tests that damage them.
#ifndef PUSHPULL_TESTS_PS_SERVER_WARM_START_READ_TENSORS_H_
#define PUSHPULL_TESTS_PS_SERVER_WARM_START_READ_TENSORS_H_

#include <string>

#include "absl/status/status.h"

#include "common/base/file_system.h"

namespace pushpull {

// Opens the checkpoint at `path` and reads every tensor that can be used.
absl::Status ReadAllTensors(FileSystem& files, const std::string& path);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_PS_SERVER_WARM_START_READ_TENSORS_H_
