// Drawn shapes: one per image, on a noisy background, with random place, size, rotation and
// colours. A data set without files: example i is a pure function of (seed, i). The label is the
// kind of shape; the one box is the shape's extent.
#ifndef PUSHPULL_WORKER_DATA_SYNTHETIC_SOURCE_H_
#define PUSHPULL_WORKER_DATA_SYNTHETIC_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "worker/data/image_source.h"

namespace pushpull {

struct SyntheticOptions {
  int64_t num_examples = 10000;
  uint64_t seed = 1;
  int height = 32;  // at least 16, as the width
  int width = 32;
  int num_channels = 3;  // 1 or 3
  int num_classes = 10;  // at most kMaxSyntheticClasses (synthetic_shapes.h)
};

class SyntheticSource final : public ImageSource {
 public:
  // INVALID_ARGUMENT names the option that is out of range.
  static absl::StatusOr<std::unique_ptr<ImageSource>> Create(const SyntheticOptions& options);

  int64_t size() const override { return options_.num_examples; }
  int num_classes() const override { return options_.num_classes; }
  std::vector<std::string> class_names() const override;
  std::string describe() const override;
  absl::Status Get(int64_t index, Example* example) const override;
  absl::Status Check(ThreadPool* pool) const override;  // nothing to verify

 private:
  explicit SyntheticSource(const SyntheticOptions& options) : options_(options) {}

  const SyntheticOptions options_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_SYNTHETIC_SOURCE_H_
