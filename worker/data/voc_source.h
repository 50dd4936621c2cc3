// The images and boxes of one split of a Pascal VOC folder (voc_annotations.h).
#ifndef PUSHPULL_WORKER_DATA_VOC_SOURCE_H_
#define PUSHPULL_WORKER_DATA_VOC_SOURCE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "common/file_system.h"
#include "worker/data/image_source.h"
#include "worker/data/label_map.h"

namespace pushpull {

class VocSource final : public ImageSource {
 public:
  // Reads all annotations of the split, no image. Boxes that cannot be used (unknown class, no
  // area, outside the image) are logged and left out. Errors as in voc_annotations.h (the first bad
  // annotation); INVALID_ARGUMENT: a label map with more classes than num_classes.
  static absl::StatusOr<std::unique_ptr<VocSource>> Open(std::unique_ptr<FileSystem> files,
                                                         const std::string& path,
                                                         const std::string& split,
                                                         const LabelMap& label_map,
                                                         int num_classes);

  int64_t size() const override { return static_cast<int64_t>(images_.size()); }
  int num_classes() const override { return num_classes_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::string describe() const override;
  // INVALID_ARGUMENT also for an image whose size is not what its annotation says.
  absl::Status Get(int64_t index, Example* example) const override;
  absl::Status Check(ThreadPool* pool) const override;

  // The boxes that are left out, a line each: file, object (from 0), what is wrong.
  const std::vector<std::string>& issues() const { return issues_; }

 private:
  struct Entry {
    std::string image_path;
    int height;
    int width;
    std::vector<Box> boxes;
  };

  VocSource(std::unique_ptr<FileSystem> files, int num_classes)
      : files_(std::move(files)), num_classes_(num_classes) {}
  absl::Status Load(const std::string& path, const std::string& split, const LabelMap& label_map);

  const std::unique_ptr<FileSystem> files_;
  const int num_classes_;
  std::string name_;  // path and split
  std::vector<std::string> class_names_;
  std::vector<Entry> images_;
  std::vector<std::string> issues_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_VOC_SOURCE_H_
