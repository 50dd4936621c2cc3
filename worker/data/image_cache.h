// A cache of decoded images on the local disk, for hosts whose GPUs train faster than the CPU
// decodes.
//
// The supervisor prepares the cache once per host (PrepareImageCache): it decodes every example of
// a source into one file in the cache folder. The clones read that file (OpenImageCache) and decode
// nothing. The operating system's page cache holds the file once for all clones.
//
// Identity: the name and the footer of a file contain a hash of the source's identity(), its class
// names, its numbers of examples and classes, and of max_side. Each time a file is opened, 16
// examples spread over the data set are decoded again and compared with it. A change to the data
// that keeps all this and does not touch those 16 goes unnoticed; remove the file after such a
// change. A file of earlier data stays in the folder until somebody removes it.
//
// max_side: an image whose longer side exceeds max_side is stored scaled down to it. It is resized
// bilinearly as the preprocessor does (TensorFlow 1, without antialiasing) and rounded to bytes.
// Boxes do not change, since their edges are shares of the image. Training then sees images that
// were resized twice, random crops are enlarged from fewer pixels, and augmentation measured in
// pixels has a larger effect. Choose max_side well above the network's input size, and twice that
// size if crops are random.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_CACHE_H_
#define PUSHPULL_WORKER_DATA_IMAGE_CACHE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/clock.h"
#include "common/base/file_system.h"
#include "common/base/stop_requested.h"
#include "common/base/thread_pool.h"
#include "worker/data/image_cache_file.h"
#include "worker/data/image_source.h"

namespace pushpull {

struct ImageCacheOptions {
  std::string folder;  // created if it does not exist; empty: the caller uses no cache
  int max_side = 0;    // in pixels; 0: images are stored at full size
};

// Returns the path of the source's cache file, "<folder>/images-<key>.cache".
std::string ImageCachePath(const ImageSource& source, const ImageCacheOptions& options);

struct ImageCacheHooks {
  // Called with the progress, for example "the image cache: 1200 of 5000 images, 1.1 GB": every ten
  // seconds while this process checks or builds, every half second while it waits for another
  // process that builds. Called by one thread at a time, not always the same. May be empty.
  std::function<void(const std::string&)> on_wait;
  // Returns true once the preparation should stop. Called from several threads, before each image
  // and while waiting for another process. May be empty.
  StopRequested stopped;
};

// Ensures that a complete cache file of `source` exists. Verifies an existing file, including the
// checksum of every image. Builds the file if it is missing, damaged or made of other data, and
// logs the reason as a warning. Building reads every example of the source, so it does the work of
// source.Check as well. If several processes prepare the same file, one builds it and the others
// wait.
//
// Blocks until done, which can take as long as decoding the whole data set. Memory: one image per
// thread and the table of the file. A crash leaves the previous file or none; the next preparation
// deletes an unfinished file.
//
// Errors: those of source.Check. RESOURCE_EXHAUSTED: the disk has not enough room; usually noticed
// by an estimate before anything is written. The message names the other caches in the folder.
// PERMISSION_DENIED and other errors of the folder. CANCELLED: `stopped` returned true.
absl::Status PrepareImageCache(FileSystem& files, const ImageSource& source,
                               const ImageCacheOptions& options, ThreadPool* pool, Clock* clock,
                               const ImageCacheHooks& hooks);

// Reads images and boxes from the cache; names and descriptions come from the source.
class CachedImageSource final : public ImageSource {
 public:
  CachedImageSource(std::unique_ptr<ImageSource> source, std::unique_ptr<ImageCacheReader> cache)
      : source_(std::move(source)), cache_(std::move(cache)) {}

  int64_t size() const override { return cache_->size(); }
  int num_classes() const override { return source_->num_classes(); }
  std::vector<std::string> class_names() const override { return source_->class_names(); }
  std::string describe() const override;
  std::string place_of_boxes() const override { return source_->place_of_boxes(); }
  std::string first_box_left_out() const override { return source_->first_box_left_out(); }
  absl::Status Get(int64_t index, Example* example) const override;
  absl::Status Check(ThreadPool* pool, StoppedFn stopped) const override;

 private:
  const std::unique_ptr<ImageSource> source_;
  const std::unique_ptr<ImageCacheReader> cache_;
};

// Returns a source with the examples of `source`, read from the file that PrepareImageCache made.
// Images larger than options.max_side are scaled down. NOT_FOUND: the file is gone. DATA_LOSS: the
// file is damaged. FAILED_PRECONDITION: the data have changed since the file was made. These and
// errors of reading the file, also later by Get and Check of the returned source, are marked as
// passing (passing_error.h), because PrepareImageCache cures them. Also returns errors of `source`,
// from which some examples are read for comparison, as they are.
absl::StatusOr<std::unique_ptr<ImageSource>> OpenImageCache(FileSystem& files,
                                                            std::unique_ptr<ImageSource> source,
                                                            const ImageCacheOptions& options);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_CACHE_H_
