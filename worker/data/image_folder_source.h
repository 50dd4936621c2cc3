// A data set with one folder of images per class: <path>/<class>/*.png|jpg|jpeg|pgm (in any case).
// Get reads and decodes one image from its file.
//
// Labels follow the order of the class names: by value if all names are numbers, bytewise
// otherwise. Examples are ordered by class, then bytewise by file name, so that the order depends
// only on the names. Other files are ignored but counted. Names that begin with a dot are skipped.
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
  // Lists the files but opens none. Logs a warning for each class without images.
  // NOT_FOUND: `path` does not exist or is not a folder. INVALID_ARGUMENT: there are no class
  // folders, their number is not num_classes (a missing folder would shift the labels of all later
  // classes), there is no image at all, or a folder cannot be read (read_error.h).
  static absl::StatusOr<std::unique_ptr<ImageSource>> Open(const std::string& path,
                                                           int num_classes);

  struct ListedImage {
    std::string path;
    std::string class_name;
  };
  struct Listing {
    std::vector<std::string> classes;  // all class names, indexed by label
    std::vector<ListedImage> images;
  };
  // Lists the images in the order of Open, for any number of classes. Errors as Open.
  static absl::StatusOr<Listing> ListImages(const std::string& path);

  // Returns the class names that Open finds, indexed by label. Does not look into the class
  // folders. NOT_FOUND, INVALID_ARGUMENT: the folder cannot be read.
  static absl::StatusOr<std::vector<std::string>> ListClasses(const std::string& path);

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  int num_classes() const override { return static_cast<int>(classes_.size()); }
  std::string describe() const override;
  // Has a checksum of the labels and file names of all images.
  std::string identity() const override;
  // INVALID_ARGUMENT also for a file above 256 MiB. Errors of reading as in read_error.h.
  absl::Status Get(int64_t index, Example* example) const override;
  absl::Status GetEncoded(int64_t index, Example* example) const override;
  absl::Status Check(ThreadPool* pool, StoppedFn stopped) const override;

  std::vector<std::string> class_names() const override { return classes_; }

 private:
  struct File {
    int32_t label;
    std::string name;
  };

  ImageFolderSource() = default;
  absl::Status ListClassFolders(const std::string& path);
  absl::Status List(const std::string& path);
  std::string FilePath(const File& file) const;

  std::string path_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
  // Entries of the folder that are not folders, and entries of class folders without an image's
  // extension.
  int64_t num_ignored_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_FOLDER_SOURCE_H_
