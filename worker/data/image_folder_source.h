// Images in one folder per class: <path>/<class>/*.png|jpg|jpeg|pgm (any case), decoded when they
// are asked for.
//
// Classes are numbered in the order of their names: by value where all names are numbers, else
// bytewise. Images follow in the order of class, then name, so the numbering depends on nothing but
// the names. Other files are ignored and counted; names that begin with a dot are skipped.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_FOLDER_SOURCE_H_
#define PUSHPULL_WORKER_DATA_IMAGE_FOLDER_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "worker/data/image_source.h"

namespace pushpull {

class ImageFolderSource final : public ImageSource {
 public:
  // Lists the files, opens none. NOT_FOUND: no such folder. INVALID_ARGUMENT: not a folder, no
  // class folders, a number of them other than num_classes (an absent folder would shift the labels
  // of those after it), or no image at all. Classes without images are logged.
  static absl::StatusOr<std::unique_ptr<ImageSource>> Open(const std::string& path,
                                                           int num_classes);

  struct ListedImage {
    std::string path;
    std::string class_name;
  };
  struct Listing {
    std::vector<std::string> classes;  // all, in the order of their labels
    std::vector<ListedImage> images;
  };
  // The images that Open would give, in the same order, whatever the number of classes. Errors as
  // Open.
  static absl::StatusOr<Listing> ListImages(const std::string& path);

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  int num_classes() const override { return static_cast<int>(classes_.size()); }
  std::string describe() const override;
  absl::Status Get(int64_t index, Example* example) const override;
  absl::Status Check(ThreadPool* pool) const override;

  std::vector<std::string> class_names() const override { return classes_; }
  // Files that are no images by their extension.
  int64_t num_ignored() const { return num_ignored_; }

 private:
  struct File {
    int32_t label;
    std::string name;
  };

  ImageFolderSource() = default;
  absl::Status List(const std::string& path);
  std::string FilePath(const File& file) const;

  std::string path_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
  int64_t num_ignored_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_FOLDER_SOURCE_H_
