// A generated data set: one shape per image on a noisy background, with random position, size,
// rotation and colours. The label is the kind of shape; the single box encloses the shape. Example
// i depends only on the options and i.
#ifndef PUSHPULL_WORKER_DATA_SYNTHETIC_SOURCE_H_
#define PUSHPULL_WORKER_DATA_SYNTHETIC_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "worker/data/image_source.h"

namespace pushpull {

// The ranges are those of CheckReader (common/config/reader_checks.h).
struct SyntheticOptions {
  int64_t num_examples = 10000;
  uint64_t seed = 1;
  int height = 32;       // in pixels
  int width = 32;        // in pixels
  int num_channels = 3;  // 1 or 3
  int num_classes = 10;  // 1 to kMaxSyntheticClasses
};

class SyntheticSource final : public ImageSource {
 public:
  explicit SyntheticSource(const SyntheticOptions& options) : options_(options) {}

  int64_t size() const override { return options_.num_examples; }
  int num_classes() const override { return options_.num_classes; }
  std::vector<std::string> class_names() const override;
  std::string describe() const override;
  absl::Status Get(int64_t index, Example* example) const override;
  absl::Status Check(ThreadPool* pool,
                     StoppedFn stopped) const override;  // always OK: there are no files

 private:
  const SyntheticOptions options_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_SYNTHETIC_SOURCE_H_
