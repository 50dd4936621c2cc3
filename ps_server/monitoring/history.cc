#include "ps_server/monitoring/history.h"

#include "glog/logging.h"

namespace pushpull {

History::History(size_t capacity) : capacity_(capacity) {
  CHECK(capacity >= 2 && capacity % 2 == 0) << capacity;
}

HistoryPoint History::Entry::Mean() const {
  HistoryPoint mean = sums;
  mean.loss /= static_cast<double>(looks);
  mean.images_per_second /= static_cast<double>(looks);
  return mean;
}

void History::Entry::Merge(const Entry& later) {
  const double loss = sums.loss + later.sums.loss;
  const double images_per_second = sums.images_per_second + later.sums.images_per_second;
  sums = later.sums;
  sums.loss = loss;
  sums.images_per_second = images_per_second;
  looks += later.looks;
}

void History::Add(const HistoryPoint& point) {
  while (!entries_.empty() && entries_.back().sums.step >= point.step) entries_.pop_back();
  const Entry look{point, 1};
  if (!entries_.empty() && entries_.back().looks < looks_per_point_) {
    entries_.back().Merge(look);
    return;
  }
  if (entries_.size() == capacity_) {
    for (size_t i = 0; i < capacity_ / 2; ++i) {
      Entry pair = entries_[2 * i];
      pair.Merge(entries_[2 * i + 1]);
      entries_[i] = pair;
    }
    entries_.resize(capacity_ / 2);
    looks_per_point_ *= 2;
  }
  entries_.push_back(look);
}

std::vector<HistoryPoint> History::Points() const {
  std::vector<HistoryPoint> points;
  points.reserve(entries_.size());
  for (const Entry& entry : entries_) points.push_back(entry.Mean());
  return points;
}

}  // namespace pushpull
