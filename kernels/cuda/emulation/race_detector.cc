#include "kernels/cuda/emulation/race_detector.h"

#include "absl/strings/str_cat.h"

namespace pushpull::emulation {
namespace {

constexpr uint32_t kLastEpoch = 1u << 31;

const char* NameOf(AccessKind kind) {
  switch (kind) {
    case AccessKind::kRead:
      return "reads";
    case AccessKind::kWrite:
      return "writes";
    case AccessKind::kAtomic:
      return "atomically changes";
  }
  return "";
}

std::string NameOf(unsigned thread) {
  return absl::StrCat("thread ", thread, " (warp ", thread / RaceDetector::kWarpSize, ")");
}

}  // namespace

std::string AccessError::Text() const {
  if (kind == Kind::kOutside) {
    return absl::StrCat(NameOf(thread), " ", NameOf(access), " shared memory at byte ", offset,
                        ", outside of it");
  }
  const bool one_warp =
      thread / RaceDetector::kWarpSize == earlier_thread / RaceDetector::kWarpSize;
  return absl::StrCat("race at byte ", offset, " of shared memory: ", NameOf(earlier_thread), " ",
                      NameOf(earlier), " it and ", NameOf(thread), " ", NameOf(access), " it, and ",
                      one_warp ? "neither __syncwarp nor __syncthreads is" : "no __syncthreads is",
                      " between them");
}

void RaceDetector::StartBlock(size_t shared_bytes, unsigned threads) {
  if (epoch_ >= kLastEpoch) {
    epoch_ = 0;
    cells_.clear();
    atomics_.clear();
  }
  ++epoch_;
  bytes_ = shared_bytes;
  const size_t cells = (shared_bytes + kCellBytes - 1) / kCellBytes;
  if (cells_.size() < cells) cells_.resize(cells);
  if (!atomics_.empty()) atomics_.resize(cells_.size());
  warp_epochs_.assign((threads + kWarpSize - 1) / kWarpSize, 0);
}

inline int RaceDetector::Conflict(const Accesses& earlier, const Now& now) {
  if (earlier.epoch != now.epoch) return -1;
  if (earlier.first == now.thread && earlier.second == now.thread) return -1;
  for (const unsigned other : {earlier.first, earlier.second}) {
    if (other / kWarpSize != now.warp) return static_cast<int>(other);
  }
  if (earlier.warp_epoch != now.warp_epoch) return -1;
  return earlier.first != now.thread ? earlier.first : earlier.second;
}

inline void RaceDetector::Add(const Now& now, Accesses* accesses) {
  const auto thread = static_cast<uint16_t>(now.thread);
  if (accesses->epoch != now.epoch) {
    *accesses = {now.epoch, now.warp_epoch, thread, thread};
    return;
  }
  const unsigned warp = accesses->first / kWarpSize;
  if (warp != accesses->second / kWarpSize) return;  // of two warps already
  if (warp != now.warp) {
    accesses->second = thread;
  } else if (accesses->warp_epoch != now.warp_epoch) {
    *accesses = {now.epoch, now.warp_epoch, thread, thread};
  } else if (accesses->first == accesses->second) {
    accesses->second = thread;
  }
}

template <AccessKind kKind>
bool RaceDetector::AccessCells(const Now& now, size_t first, size_t end, AccessError* error) {
  for (size_t c = first; c < end; ++c) {
    Cell& cell = cells_[c];
    int other = Conflict(cell.writes, now);
    AccessKind earlier = AccessKind::kWrite;
    if (kKind != AccessKind::kRead && other < 0) {
      other = Conflict(cell.reads, now);
      earlier = AccessKind::kRead;
    }
    if (kKind != AccessKind::kAtomic && other < 0 && !atomics_.empty()) {
      other = Conflict(atomics_[c], now);
      earlier = AccessKind::kAtomic;
    }
    if (other >= 0) {
      *error = {AccessError::Kind::kRace,
                static_cast<ptrdiff_t>(c * kCellBytes),
                now.thread,
                kKind,
                static_cast<unsigned>(other),
                earlier};
      return false;
    }
    if (kKind == AccessKind::kRead) Add(now, &cell.reads);
    if (kKind == AccessKind::kAtomic) Add(now, &atomics_[c]);
    if (kKind == AccessKind::kWrite) {
      const auto thread = static_cast<uint16_t>(now.thread);
      cell.writes = {now.epoch, now.warp_epoch, thread, thread};
    }
  }
  return true;
}

bool RaceDetector::Access(AccessKind kind, unsigned thread, ptrdiff_t offset, size_t bytes,
                          AccessError* error) {
  const auto size = static_cast<ptrdiff_t>(bytes_);
  const ptrdiff_t last = offset + static_cast<ptrdiff_t>(bytes);
  if (offset < 0 || last > size) {
    *error = {AccessError::Kind::kOutside, offset < 0 || offset > size ? offset : size, thread,
              kind};
    return false;
  }
  const unsigned warp = thread / kWarpSize;
  const Now now{thread, warp, epoch_, warp_epochs_[warp]};
  const size_t first = static_cast<size_t>(offset) / kCellBytes;
  const size_t end = (static_cast<size_t>(last) + kCellBytes - 1) / kCellBytes;
  switch (kind) {
    case AccessKind::kRead:
      return AccessCells<AccessKind::kRead>(now, first, end, error);
    case AccessKind::kWrite:
      return AccessCells<AccessKind::kWrite>(now, first, end, error);
    case AccessKind::kAtomic:
      if (atomics_.empty()) atomics_.resize(cells_.size());
      return AccessCells<AccessKind::kAtomic>(now, first, end, error);
  }
  return true;
}

}  // namespace pushpull::emulation
