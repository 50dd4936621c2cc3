// Small checkpoints for tests: a layout, vectors with recognisable values, and a call that writes
// and publishes a checkpoint.
#ifndef PUSHPULL_TESTS_COMMON_CHECKPOINT_CHECKPOINT_TESTING_H_
#define PUSHPULL_TESTS_COMMON_CHECKPOINT_CHECKPOINT_TESTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/base/file_system.h"
#include "common/checkpoint/manifest.h"
#include "common/model/variable_layout.h"

namespace pushpull {

inline constexpr char kTestRunId[] = "00112233445566778899aabbccddeeff";

// Two convolution variables, two moving statistics, and a dense layer [hidden, 10] with bias.
VariableLayout TestLayout(int64_t hidden);

// The complete flat vectors of one version.
struct TestState {
  std::vector<float> weights;
  std::vector<float> adam;
  std::vector<float> adam_1;
  std::vector<float> ema;
};

// A pure function of layout and step. Padding is zero, and so are the slots of moving statistics.
TestState MakeTestState(const VariableLayout& layout, uint64_t step);

CheckpointManifest MakeTestManifest(const VariableLayout& layout, uint64_t epoch, uint64_t step);

// Writes all shards and publishes the checkpoint. Abandons it on an error, as a server does.
absl::Status SaveTestCheckpoint(FileSystem& files, const std::string& directory,
                                const VariableLayout& layout, uint64_t epoch, uint64_t step,
                                int tasks);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_COMMON_CHECKPOINT_CHECKPOINT_TESTING_H_
