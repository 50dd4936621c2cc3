// Writes and reads one file of decoded images. The format is described in image_cache_format.h.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_CACHE_FILE_H_
#define PUSHPULL_WORKER_DATA_IMAGE_CACHE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

#include "common/base/file_system.h"
#include "worker/data/image_cache_format.h"
#include "worker/data/image_source.h"

namespace pushpull {

// Identifies the data and the options that a file was made from.
struct ImageCacheIdentity {
  std::string key;  // kImageCacheKeyBytes characters
  int64_t num_examples = 0;
  int num_classes = 0;
  int max_side = 0;
};

// Thread-safe. Holds the table in memory: 40 bytes per example and 28 per box.
class ImageCacheWriter {
 public:
  // Creates the file or truncates an existing one. CHECKs the length of the key. Errors of the file
  // system.
  static absl::StatusOr<std::unique_ptr<ImageCacheWriter>> Create(
      FileSystem& files, const std::string& path, const ImageCacheIdentity& identity);

  // Appends the pixels of example `index`. Call once per index, in any order. Blocks on the disk.
  // After an error of the file, all later calls return that error.
  absl::Status Add(int64_t index, const Example& example);
  // Writes table and footer, syncs and closes the file. Call once, after all other calls. CHECKs
  // that all examples were added.
  absl::Status Finish();

  int64_t bytes_written() const;

 private:
  ImageCacheWriter(std::unique_ptr<WritableFile> file, const ImageCacheIdentity& identity);
  absl::Status Append(const void* data, size_t size_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ImageCacheIdentity identity_;
  mutable absl::Mutex mutex_;
  const std::unique_ptr<WritableFile> file_ ABSL_PT_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_written_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_added_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<ImageCacheEntry> table_ ABSL_GUARDED_BY(mutex_);
  std::vector<ImageCacheBox> boxes_ ABSL_GUARDED_BY(mutex_);
};

// Thread-safe; immutable after opening. Holds the table in memory and reads pixels from the file
// with positioned reads, which the operating system's page cache serves to all processes of a host.
// The file is not mapped: with a mapping, a truncated file or a failing disk would raise SIGBUS;
// a read returns an error.
class ImageCacheReader {
 public:
  // Reads and verifies header, table and footer, but no pixels. NOT_FOUND: no such file. DATA_LOSS:
  // the file is truncated or damaged. FAILED_PRECONDITION: the file has another version or was not
  // made from `identity`.
  static absl::StatusOr<std::unique_ptr<ImageCacheReader>> Open(FileSystem& files,
                                                                const std::string& path,
                                                                const ImageCacheIdentity& identity);

  int64_t size() const { return static_cast<int64_t>(table_.size()); }
  int64_t size_bytes() const { return file_->size_bytes(); }
  const std::string& path() const { return path_; }

  // As ImageSource::Get, and verifies the checksum of the pixels. DATA_LOSS: the image is damaged
  // or cut off. Other errors as ReadableFile::ReadAt. The message names the file and the index.
  absl::Status Get(int64_t index, Example* example) const;

 private:
  ImageCacheReader(std::unique_ptr<ReadableFile> file, const std::string& path)
      : file_(std::move(file)), path_(path) {}
  absl::Status ReadFooter(ImageCacheFooter* footer) const;
  absl::Status ReadTable(const ImageCacheFooter& footer);
  absl::Status CheckEntries(const ImageCacheFooter& footer) const;

  const std::unique_ptr<ReadableFile> file_;
  const std::string path_;
  std::vector<ImageCacheEntry> table_;
  std::vector<ImageCacheBox> boxes_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_CACHE_FILE_H_
