// A data set in a Pascal VOC folder (voc_annotations.h): the images and boxes of one split.
#ifndef PUSHPULL_WORKER_DATA_VOC_SOURCE_H_
#define PUSHPULL_WORKER_DATA_VOC_SOURCE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "worker/data/annotated_image.h"
#include "worker/data/image_source.h"
#include "worker/data/label_map.h"

namespace pushpull {

class VocSource final : public ImageSource {
 public:
  // Reads all annotations of the split, but no images. Blocks on the disk. Leaves out boxes that
  // cannot be used and clips those that reach outside the image (see ResolveObject), and logs the
  // first 20 of each kind.
  // INVALID_ARGUMENT: the label map has more classes than num_classes. CANCELLED: `stopped`
  // returned true, which is asked before each annotation. Other errors as in voc_annotations.h, for
  // the first bad annotation.
  static absl::StatusOr<std::unique_ptr<VocSource>> Open(std::unique_ptr<FileSystem> files,
                                                         const std::string& path,
                                                         const std::string& split,
                                                         const LabelMap& label_map, int num_classes,
                                                         StoppedFn stopped = NeverStopped);

  int64_t size() const override { return static_cast<int64_t>(images_.size()); }
  int num_classes() const override { return num_classes_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::string describe() const override;
  // Has a checksum of all boxes, which the annotations and the label map decide.
  std::string identity() const override;
  std::string place_of_boxes() const override {
    return "an <object> with a <bndbox> in the annotations, of a class in the label map";
  }
  std::string first_box_left_out() const override {
    return issues_.left_out.empty() ? "" : issues_.left_out.front();
  }
  // INVALID_ARGUMENT also if the image does not have the size that its annotation gives.
  absl::Status Get(int64_t index, Example* example) const override;
  absl::Status GetEncoded(int64_t index, Example* example) const override;
  absl::Status Check(ThreadPool* pool, StoppedFn stopped) const override;

  // Returns one line for each box that was left out or clipped: the file, the object (from 0) and
  // what is wrong.
  const BoxIssues& issues() const { return issues_; }

 private:
  struct Entry {
    std::string image_path;
    int height;
    int width;
    std::vector<Box> boxes;
  };

  VocSource(std::unique_ptr<FileSystem> files, int num_classes)
      : files_(std::move(files)), num_classes_(num_classes) {}
  absl::Status Load(const std::string& path, const std::string& split, const LabelMap& label_map,
                    StoppedFn stopped);

  const std::unique_ptr<FileSystem> files_;
  const int num_classes_;
  std::string name_;  // path and split
  std::vector<std::string> class_names_;
  std::vector<Entry> images_;
  BoxIssues issues_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_VOC_SOURCE_H_
