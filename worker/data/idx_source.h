// A data set in IDX files (the format of MNIST), held in memory as uint8. Files may be gzipped.
//
// An IDX file is big-endian. It holds two zero bytes, a byte for the element type (8 = unsigned
// byte), a byte for the number of dimensions, the dimensions as uint32, and the elements. Images
// have the dimensions [n, height, width] or [n, height, width, channels] with 1 or 3 channels;
// labels have [n].
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
  // Reads and verifies both files, the two headers before any data. Blocks on the disk.
  // NOT_FOUND: no such file. INVALID_ARGUMENT: a file is not of the expected kind of IDX, has no
  // examples, announces more than 4 GiB or has bytes after its data, the numbers of images and
  // labels differ, or a label is >= num_classes. DATA_LOSS: a file is truncated or is bad gzip. If
  // both files are bad, the message names both problems and the code is that of the images.
  // CANCELLED: `stopped` returned true, which is asked before each MiB of data.
  static absl::StatusOr<std::unique_ptr<ImageSource>> Open(const std::string& images_path,
                                                           const std::string& labels_path,
                                                           int num_classes,
                                                           StoppedFn stopped = NeverStopped);

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  int num_classes() const override { return num_classes_; }
  std::vector<std::string> class_names() const override;  // "0", "1", ...
  std::string describe() const override;
  // Has the path of the labels and a checksum of them.
  std::string identity() const override;
  absl::Status Get(int64_t index, Example* example) const override;
  absl::Status Check(ThreadPool* pool,
                     StoppedFn stopped) const override;  // always OK: Open verified everything

 private:
  IdxSource() = default;

  std::string images_path_;
  std::string labels_path_;
  int num_classes_ = 0;
  int height_ = 0;
  int width_ = 0;
  int channels_ = 0;
  std::vector<uint8_t> pixels_;  // [n, height, width, channels]
  std::vector<uint8_t> labels_;  // [n]
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IDX_SOURCE_H_
