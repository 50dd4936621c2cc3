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
    lower_ = {};
    upper_ = {};
  }
  block_ = ++epoch_;
  bytes_ = shared_bytes;
  const size_t words = (shared_bytes + kWordBytes - 1) / kWordBytes;
  if (lower_.plain.size() < words) {
    for (Cells* cells : {&lower_, &upper_}) {
      cells->plain.resize(words);
      if (!cells->atomics.empty()) cells->atomics.resize(words);
    }
  }
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
  if (SayAll(*accesses, now)) return;
  const bool of_this_warp = accesses->first / kWarpSize == now.warp;
  if (accesses->epoch != now.epoch || (of_this_warp && accesses->warp_epoch != now.warp_epoch)) {
    *accesses = {now.epoch, now.warp_epoch, thread, thread};
  } else {
    accesses->second = thread;
  }
}

void RaceDetector::Split(size_t word) {
  upper_.plain[word] = lower_.plain[word];
  lower_.plain[word].split_in = block_;
  if (!lower_.atomics.empty()) upper_.atomics[word] = lower_.atomics[word];
}

template <AccessKind kKind>
inline bool RaceDetector::AccessCell(const Now& now, size_t word, size_t offset, Cells* cells,
                                     AccessError* error) {
  Cell& cell = cells->plain[word];
  int other = Conflict(cell.writes, now);
  AccessKind earlier = AccessKind::kWrite;
  if (kKind != AccessKind::kRead && other < 0) {
    other = Conflict(cell.reads, now);
    earlier = AccessKind::kRead;
  }
  if (kKind != AccessKind::kAtomic && other < 0 && !cells->atomics.empty()) {
    other = Conflict(cells->atomics[word], now);
    earlier = AccessKind::kAtomic;
  }
  if (other >= 0) {
    *error = {AccessError::Kind::kRace,
              static_cast<ptrdiff_t>(offset),
              now.thread,
              kKind,
              static_cast<unsigned>(other),
              earlier};
    return false;
  }
  if (kKind == AccessKind::kRead) Add(now, &cell.reads);
  if (kKind == AccessKind::kAtomic) Add(now, &cells->atomics[word]);
  if (kKind == AccessKind::kWrite) {
    const auto thread = static_cast<uint16_t>(now.thread);
    cell.writes = {now.epoch, now.warp_epoch, thread, thread};
  }
  return true;
}

template <AccessKind kKind>
bool RaceDetector::AccessHalves(Now now, size_t first, size_t end, AccessError* error) {
  size_t half = first;
  while (half < end) {
    const size_t word = half / 2;
    const bool whole = half % 2 == 0 && half + 2 <= end;
    if (!whole && !IsSplit(word)) Split(word);
    if (!AccessCell<kKind>(now, word, half * kHalfBytes, half % 2 == 0 ? &lower_ : &upper_,
                           error)) {
      return false;
    }
    half += whole && !IsSplit(word) ? 2 : 1;
  }
  return true;
}

template <AccessKind kKind>
inline bool RaceDetector::AccessBytes(const Now& now, size_t offset, size_t bytes,
                                      AccessError* error) {
  if (bytes == kWordBytes && offset % kWordBytes == 0 && !IsSplit(offset / kWordBytes)) {
    return AccessCell<kKind>(now, offset / kWordBytes, offset, &lower_, error);
  }
  return AccessHalves<kKind>(now, offset / kHalfBytes,
                             (offset + bytes + kHalfBytes - 1) / kHalfBytes, error);
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
  const auto first = static_cast<size_t>(offset);
  switch (kind) {
    case AccessKind::kRead:
      return AccessBytes<AccessKind::kRead>(now, first, bytes, error);
    case AccessKind::kWrite:
      return AccessBytes<AccessKind::kWrite>(now, first, bytes, error);
    case AccessKind::kAtomic:
      if (lower_.atomics.empty()) {
        lower_.atomics.resize(lower_.plain.size());
        upper_.atomics.resize(lower_.plain.size());
      }
      return AccessBytes<AccessKind::kAtomic>(now, first, bytes, error);
  }
  return true;
}

}  // namespace pushpull::emulation
