// History keeps the course of the training since the server started, in bounded memory. When it
// is full, neighbouring points are merged, and every later point covers twice as many samples.
#ifndef PUSHPULL_PS_SERVER_MONITORING_HISTORY_H_
#define PUSHPULL_PS_SERVER_MONITORING_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pushpull {

struct HistoryPoint {
  uint64_t step = 0;
  double unix_seconds = 0.0;
  double loss = 0.0;  // mean since the previous point
  double learning_rate = 0.0;
  double images_per_second = 0.0;  // mean since the previous point
};

// Not thread-safe.
class History {
 public:
  // capacity: the largest number of points, even and at least 2.
  explicit History(size_t capacity);

  // Adds one sample. If its step is not higher than the last one, the server has gone back to
  // a checkpoint, and all points from that step on are removed first.
  void Add(const HistoryPoint& point);

  // The points in the order of steps. The newest point may cover fewer samples than the others.
  std::vector<HistoryPoint> Points() const;

 private:
  // A point as sums of loss and images_per_second over `looks` samples. Step, time and
  // learning rate are those of the last sample.
  struct Entry {
    HistoryPoint sums;
    size_t looks = 0;
    HistoryPoint Mean() const;
    void Merge(const Entry& later);
  };

  const size_t capacity_;
  size_t looks_per_point_ = 1;  // number of samples that a complete point covers
  std::vector<Entry> entries_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_HISTORY_H_
