// A tiny classifier on drawn shapes, its checkpoints, and a clock that runs a script while the
// evaluator sleeps.
#ifndef PUSHPULL_TESTS_WORKER_EVAL_EVAL_TESTING_H_
#define PUSHPULL_TESTS_WORKER_EVAL_EVAL_TESTING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/base/clock.h"
#include "common/base/file_system.h"
#include "common/model/variable_layout.h"
#include "protos/pipeline.pb.h"
#include "tests/testkit/warning_sink.h"

namespace pushpull {

// A MobileNetV2 of width 0.25 for images of 32 x 32 pixels and 10 classes, with 24 examples,
// batches of 10 and a batch-norm decay of 0.9.
config::TrainEvalPipelineConfig TinyConfig();

// Weights whose scores differ between examples and between seeds.
std::vector<float> TinyWeights(const VariableLayout& layout, uint64_t seed);

struct TinyCheckpoint {
  uint64_t epoch = 1;
  uint64_t step = 0;
  uint64_t weights_seed = 1;
  uint64_t ema_seed = 0;  // 0: no EMA
  bool training_done = false;
  uint64_t num_images = 0;
  std::string run_id = "00112233445566778899aabbccddeeff";
};

absl::Status PublishTiny(FileSystem& files, const std::string& directory,
                         const VariableLayout& layout, const TinyCheckpoint& checkpoint);

// Sleep advances the time and calls `on_sleep` with the number of the call, counted from 0.
class ScriptedClock final : public Clock {
 public:
  explicit ScriptedClock(std::function<void(int)> on_sleep) : on_sleep_(std::move(on_sleep)) {}

  absl::Duration Now() const override { return now_; }
  void Sleep(absl::Duration duration) override {
    now_ += duration;
    on_sleep_(sleeps_++);
  }
  int sleeps() const { return sleeps_; }

 private:
  std::function<void(int)> on_sleep_;
  absl::Duration now_;
  int sleeps_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_WORKER_EVAL_EVAL_TESTING_H_
