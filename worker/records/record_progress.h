// What writing and checking records share: how far it is, and whether to stop.
#ifndef PUSHPULL_WORKER_RECORDS_RECORD_PROGRESS_H_
#define PUSHPULL_WORKER_RECORDS_RECORD_PROGRESS_H_

#include <atomic>
#include <cstdint>
#include <functional>

namespace pushpull {

struct RecordProgress {
  // Called now and then, on the caller's thread, with the number of images done. May be empty.
  std::function<void(int64_t done, int64_t total)> report;
  // Set from outside: the work ends soon with CANCELLED. May be null.
  const std::atomic<bool>* stop = nullptr;
};

// Images that are in memory at a time.
inline constexpr int64_t kImagesPerRound = 64;

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_RECORDS_RECORD_PROGRESS_H_
