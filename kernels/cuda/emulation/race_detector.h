// Finds pairs of accesses to a block's shared memory that nothing orders: data races.
//
// Two accesses to the same bytes by different threads race if at least one of them is a write and
// no barrier lies between them: __syncthreads, or __syncwarp if both threads are of one warp. It
// does not matter which of the two ran first in emulation. Atomic operations do not race with each
// other. Shuffles, votes and the instructions of the tensor cores order no memory, as CUDA's
// programming guide says, so they do not count as barriers.
//
// The detector counts __syncthreads (the block's epoch) and the __syncwarp of each warp (the warp's
// epoch). For each four bytes of shared memory, a word, it keeps the epochs and the thread of the
// last write, and the epochs of the last reads and the last atomic operations with two of their
// threads. That is exact: reads of one block epoch either come from one warp, then only its last
// warp epoch can race with that warp, or from two, and then one of them races with any writer. Once
// an access in a block begins or ends in the middle of a word, its halves are kept apart. Threads
// that access neighbouring single bytes would be reported, but no kernel keeps bytes in shared
// memory.
//
// Reads of what nothing has been written to are not errors: kernels load whole vectors of which
// they then use a part. The emulation fills shared memory with NaN patterns instead.
//
// Not thread-safe. It knows nothing of how the accesses are observed (shared_accesses.h).
#ifndef PUSHPULL_KERNELS_CUDA_EMULATION_RACE_DETECTOR_H_
#define PUSHPULL_KERNELS_CUDA_EMULATION_RACE_DETECTOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/access_kind.h"

namespace pushpull::emulation {

// What is wrong with an access. Threads are numbered within the block; 32 of them are a warp.
struct AccessError {
  enum class Kind {
    kRace,     // with the access `earlier` of the thread `earlier_thread`
    kOutside,  // it begins or ends outside of the block's shared memory
  };
  Kind kind = Kind::kRace;
  ptrdiff_t offset = 0;  // in bytes, of the first byte that is wrong, rounded down to two bytes
  unsigned thread = 0;
  AccessKind access = AccessKind::kRead;
  unsigned earlier_thread = 0;
  AccessKind earlier = AccessKind::kRead;

  // One sentence, which names the barrier that is missing.
  std::string Text() const;
};

class RaceDetector {
 public:
  static constexpr unsigned kWarpSize = 32;

  // Begins a block of up to 1024 threads.
  void StartBlock(size_t shared_bytes, unsigned threads);
  // All threads of the block, or of the warp, have reached the barrier.
  void PassBlockBarrier() { ++epoch_; }
  void PassWarpBarrier(unsigned warp) { ++warp_epochs_[warp]; }

  // Notes an access to the bytes [offset, offset + bytes) and returns true, or false if it is an
  // error, which `error` then describes.
  bool Access(AccessKind kind, unsigned thread, ptrdiff_t offset, size_t bytes, AccessError* error);

  // Whether Access would return true for this read and note nothing new, as for most reads of
  // kernels; the emulation asks first to save time. False if not sure. Two threads have then read
  // the same words without an error, so nothing that this read would race with has happened: it
  // would have raced with one of those reads.
  bool IsKnownRead(unsigned thread, ptrdiff_t offset, size_t bytes) const {
    const auto begin = static_cast<size_t>(offset);
    if ((begin | bytes) % kWordBytes != 0 || begin > bytes_ || bytes > bytes_ - begin) return false;
    const unsigned warp = thread / kWarpSize;
    const Now now{thread, warp, epoch_, warp_epochs_[warp]};
    for (size_t word = begin / kWordBytes; word < (begin + bytes) / kWordBytes; ++word) {
      if (IsSplit(word) || !SayAll(lower_.plain[word].reads, now)) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kHalfBytes = 2, kWordBytes = 2 * kHalfBytes;

  // Accesses of one kind to the same bytes in block epoch `epoch`. If `first` and `second` are of
  // one warp, all accesses are of that warp, `warp_epoch` is its epoch at the latest of them, and
  // the two are threads that accessed the bytes in it. Otherwise they are threads of two warps.
  struct Accesses {
    uint32_t epoch = 0;
    uint32_t warp_epoch = 0;
    uint16_t first = 0, second = 0;
  };
  struct Cell {
    Accesses writes;  // only the last
    Accesses reads;
    uint32_t split_in = 0;  // of a word: the last block in which it was split
  };
  // One cell for each word.
  struct Cells {
    std::vector<Cell> plain;
    std::vector<Accesses> atomics;  // empty until the first atomic operation
  };
  // A thread, its warp and the epochs of the block and of the warp.
  struct Now {
    unsigned thread, warp;
    uint32_t epoch, warp_epoch;
  };

  static bool AreOfTwoWarps(const Accesses& accesses) {
    return accesses.first / kWarpSize != accesses.second / kWarpSize;
  }
  // Whether Add would change nothing.
  static bool SayAll(const Accesses& accesses, const Now& now) {
    if (accesses.epoch != now.epoch) return false;
    if (AreOfTwoWarps(accesses)) return true;
    return accesses.first / kWarpSize == now.warp && accesses.warp_epoch == now.warp_epoch &&
           accesses.first != accesses.second;
  }
  static void Add(const Now& now, Accesses* accesses);
  // Returns a thread whose accesses the current one may not follow, or -1.
  static int Conflict(const Accesses& earlier, const Now& now);
  bool IsSplit(size_t word) const { return lower_.plain[word].split_in == block_; }
  void Split(size_t word);
  // Notes an access to a cell, whose first byte is `offset`.
  template <AccessKind kKind>
  bool AccessCell(const Now& now, size_t word, size_t offset, Cells* cells, AccessError* error);
  // Notes an access to the halves [first, end), counted from the beginning of shared memory.
  template <AccessKind kKind>
  bool AccessHalves(Now now, size_t first, size_t end, AccessError* error);
  template <AccessKind kKind>
  bool AccessBytes(const Now& now, size_t offset, size_t bytes, AccessError* error);

  size_t bytes_ = 0;
  // The epochs go on from block to block, so that cells need not be cleared.
  uint32_t epoch_ = 0;
  uint32_t block_ = 0;  // the epoch in which the block began
  std::vector<uint32_t> warp_epochs_;
  Cells lower_;  // of the lower halves of the words that are split, else of words
  Cells upper_;  // of the upper halves of the words that are split
};

}  // namespace pushpull::emulation

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_RACE_DETECTOR_H_
