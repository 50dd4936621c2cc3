// Decoded images on the local disk, for machines whose GPUs eat more than the CPU can decode.
//
// The supervisor of a host's clones prepares the cache once (PrepareImageCache): it decodes every
// example of a source into one file of the folder. The clones read that file (OpenImageCache)
// instead of decoding; the operating system keeps its pages once for all of them.
//
// Which data a file belongs to: its name and footer carry a hash of what the source says of itself
// (describe(), class names, numbers of examples and classes) and of max_side. Whenever one is
// opened, 16 examples spread over the set are decoded again and compared. A change of the data that
// leaves their number and those 16 alone goes unseen: remove the file after such a change.
//
// max_side: images whose longer side is above it are stored scaled down to it, bilinear as the
// preprocessor does (TensorFlow 1, without smoothing), rounded to bytes. Boxes are shares of the
// image and stay. Training then sees images that were resized twice, crops have fewer pixels to be
// enlarged from, and augmentation that counts in pixels counts smaller ones: choose it well above
// the network's input, twice as much where crops are random.
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

#include "common/clock.h"
#include "common/file_system.h"
#include "common/thread_pool.h"
#include "worker/data/image_cache_file.h"
#include "worker/data/image_source.h"

namespace pushpull {

struct ImageCacheOptions {
  std::string folder;  // made when it does not exist; empty: no cache
  int max_side = 0;    // 0: images as decoded
};

// "images-<key>.cache" in the folder.
std::string ImageCachePath(const ImageSource& source, const ImageCacheOptions& options);

struct ImageCacheHooks {
  // Told every ten seconds, by one thread at a time, what is waited for: "the image cache: 1200 of
  // 5000 images, 1.1 GB". May be empty.
  std::function<void(const std::string&)> on_wait;
  // True when the caller wants no more; asked between images. May be empty.
  std::function<bool()> stopped;
};

// Makes sure that a whole and fitting cache of `source` exists: checks the one that is there, every
// pixel included, and builds it when it is missing, damaged or of other data (a warning says why).
// Building reads every example of the source, so it also is the source's Check. Of several
// processes one builds while the others wait. Memory: one image per thread and the table. A crash
// leaves the old file, or none; what was left half done is overwritten by the next.
//
// Errors: those of the source, as its Check; RESOURCE_EXHAUSTED when the disk has no room, before
// anything is written where that can be estimated; PERMISSION_DENIED and others of the folder;
// CANCELLED when stopped.
absl::Status PrepareImageCache(FileSystem& files, const ImageSource& source,
                               const ImageCacheOptions& options, ThreadPool* pool, Clock* clock,
                               const ImageCacheHooks& hooks);

class CachedImageSource final : public ImageSource {
 public:
  CachedImageSource(std::unique_ptr<ImageSource> source, std::unique_ptr<ImageCacheReader> cache)
      : source_(std::move(source)), cache_(std::move(cache)) {}

  int64_t size() const override { return cache_->size(); }
  int num_classes() const override { return source_->num_classes(); }
  std::vector<std::string> class_names() const override { return source_->class_names(); }
  std::string describe() const override;
  absl::Status Get(int64_t index, Example* example) const override;
  absl::Status Check(ThreadPool* pool) const override;

 private:
  const std::unique_ptr<ImageSource> source_;
  const std::unique_ptr<ImageCacheReader> cache_;
};

// The same examples as `source`, out of the cache that PrepareImageCache made. NOT_FOUND,
// DATA_LOSS, FAILED_PRECONDITION: it has gone, is damaged, or the data have changed since.
absl::StatusOr<std::unique_ptr<ImageSource>> OpenImageCache(FileSystem& files,
                                                            std::unique_ptr<ImageSource> source,
                                                            const ImageCacheOptions& options);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_CACHE_H_
