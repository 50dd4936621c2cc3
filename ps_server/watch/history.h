// The training's course since the server started, in bounded memory: when it is full, neighbours
// are merged and every later point covers twice as many looks.
#ifndef PUSHPULL_PS_SERVER_WATCH_HISTORY_H_
#define PUSHPULL_PS_SERVER_WATCH_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pushpull {

struct HistoryPoint {
  uint64_t step = 0;
  double unix_seconds = 0.0;
  double loss = 0.0;  // mean since the point before
  double learning_rate = 0.0;
  double images_per_second = 0.0;  // likewise
};

// Not thread-safe.
class History {
 public:
  // capacity: points kept, even.
  explicit History(size_t capacity);

  // A look. Steps rise; after a lower or equal one (the server went back to a checkpoint) what was
  // known from there on is forgotten.
  void Add(const HistoryPoint& point);

  // In the order of steps; the newest may cover fewer looks than the others.
  std::vector<HistoryPoint> Points() const;
  // Looks that a whole point covers.
  size_t looks_per_point() const { return looks_per_point_; }

 private:
  // A mean over looks; step, time and learning rate are the last look's.
  struct Entry {
    HistoryPoint sums;
    size_t looks = 0;
    HistoryPoint Mean() const;
    void Merge(const Entry& later);
  };

  const size_t capacity_;
  size_t looks_per_point_ = 1;
  std::vector<Entry> entries_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WATCH_HISTORY_H_
