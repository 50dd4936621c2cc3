// Images and labels in IDX files (the format of MNIST), gzip or not, held in memory as uint8.
//
// IDX: big-endian; bytes 0 0, type (8 = unsigned byte), number of dimensions, then each dimension
// as uint32, then the elements. Images have 3 dimensions [n, height, width] or 4 with channels (1
// or 3) last; labels have 1.
#ifndef PUSHPULL_WORKER_DATA_IDX_SOURCE_H_
#define PUSHPULL_WORKER_DATA_IDX_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "worker/data/image_source.h"

namespace pushpull {

class IdxSource final : public ImageSource {
 public:
  // Reads and verifies everything, both headers first. NOT_FOUND: no such file. INVALID_ARGUMENT:
  // not the expected kind of IDX, more than 4 GiB announced, bytes left over, counts that differ,
  // or a label >= num_classes. DATA_LOSS: truncated, or bad gzip. When both files are bad the
  // message says both.
  static absl::StatusOr<std::unique_ptr<ImageSource>> Open(const std::string& images_path,
                                                           const std::string& labels_path,
                                                           int num_classes);

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  int num_classes() const override { return num_classes_; }
  std::vector<std::string> class_names() const override;  // the label numbers, from 0
  std::string describe() const override;
  absl::Status Get(int64_t index, Example* example) const override;
  absl::Status Check(ThreadPool* pool) const override;  // nothing is left to verify

 private:
  IdxSource() = default;

  std::string images_path_;
  int num_classes_ = 0;
  int height_ = 0;
  int width_ = 0;
  int channels_ = 0;
  std::vector<uint8_t> pixels_;  // [n, height, width, channels]
  std::vector<uint8_t> labels_;  // [n]
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IDX_SOURCE_H_
