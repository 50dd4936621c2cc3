// SampledSource reads the first of each n examples of a data set and leaves out the others, as
// TensorFlow's sample_1_of_n_examples does.
#ifndef PUSHPULL_WORKER_DATA_SAMPLED_SOURCE_H_
#define PUSHPULL_WORKER_DATA_SAMPLED_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/data/image_source.h"

namespace pushpull {

// Thread rule: as ImageSource.
class SampledSource final : public ImageSource {
 public:
  // Example i is example i * n of `source`. n >= 1 (CHECK).
  SampledSource(std::unique_ptr<ImageSource> source, int64_t n);

  // The size of `source` / n, rounded up.
  int64_t size() const override;
  int num_classes() const override { return source_->num_classes(); }
  std::vector<std::string> class_names() const override { return source_->class_names(); }
  std::string describe() const override;
  // Has n, so that an image cache of other examples does not fit.
  std::string identity() const override;
  std::string place_of_boxes() const override { return source_->place_of_boxes(); }
  std::string first_box_left_out() const override { return source_->first_box_left_out(); }
  absl::Status Get(int64_t index, Example* example) const override;
  absl::Status GetEncoded(int64_t index, Example* example) const override;
  // Reads only the examples that Get returns.
  absl::Status Check(ThreadPool* pool, StoppedFn stopped) const override;

 private:
  const std::unique_ptr<ImageSource> source_;
  const int64_t n_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_SAMPLED_SOURCE_H_
