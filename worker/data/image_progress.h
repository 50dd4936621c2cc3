// Tells the user from time to time how far a pass over the images of a data set is.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_PROGRESS_H_
#define PUSHPULL_WORKER_DATA_IMAGE_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/base/clock.h"

namespace pushpull {

class ImageProgress {
 public:
  // Called by one thread at a time, not always the same.
  using ReportFn = std::function<void(const std::string&)>;

  // Reports, for example, "the check of the images: 1200 of 5000" at most every ten seconds, first
  // ten seconds from now. `total` 0: it is not known and not named. `report` may be empty. `clock`
  // must outlive the object.
  ImageProgress(std::string what, int64_t total, Clock* clock, ReportFn report);

  // Counts an image that is about to be read. Thread-safe.
  void Count() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::string what_;
  const int64_t total_;
  Clock* const clock_;
  const ReportFn report_;
  absl::Mutex mutex_;
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration last_report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_PROGRESS_H_
