// RecordProgress reports the progress of writing or checking records, and can stop it.
#ifndef PUSHPULL_WORKER_RECORDS_RECORD_PROGRESS_H_
#define PUSHPULL_WORKER_RECORDS_RECORD_PROGRESS_H_

#include <atomic>
#include <cstdint>
#include <functional>

namespace pushpull {

struct RecordProgress {
  // Called on the caller's thread after each group of images, with the number of images done. May
  // be empty.
  std::function<void(int64_t done, int64_t total)> report;
  // When another thread sets it, the work ends after the current group with CANCELLED. May be null.
  const std::atomic<bool>* stop = nullptr;
};

// Number of images in a group. They are processed in parallel and are in memory together.
inline constexpr int64_t kImagesPerGroup = 64;

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_RECORDS_RECORD_PROGRESS_H_
