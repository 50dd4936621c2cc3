// Brings memory that a thread reads next from main memory to the second-level cache, a few lines at
// a time between two pieces of computation. So the memory works while the processor multiplies.
#ifndef PUSHPULL_KERNELS_CPU_PREFETCHER_H_
#define PUSHPULL_KERNELS_CPU_PREFETCHER_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace pushpull {

// A list of pieces of memory. Plain values; serves one thread. The memory is only touched as a
// hint, so it need not outlive the list.
class Prefetcher {
 public:
  struct Piece {
    const char* begin;
    int64_t bytes;
  };

  // Adds `count` numbers. Of more than kMaxPieces pieces the rest is left out, which costs time
  // but nothing else.
  template <typename T>
  void Add(const T* numbers, int64_t count) {
    if (count <= 0 || end_ == pieces_.size()) return;
    pieces_[end_++] = {reinterpret_cast<const char*>(numbers),
                       count * static_cast<int64_t>(sizeof(T))};
  }

  // Asks for the next kLinesPerStep lines, in the order in which they were added.
  void Step() {
    for (int lines = 0; lines < kLinesPerStep && first_ < end_; ++lines) {
      Piece& piece = pieces_[first_];
      __builtin_prefetch(piece.begin, /*write=*/0, /*locality=*/2);
      if (piece.bytes <= kLineBytes) {
        ++first_;
      } else {
        piece.begin += kLineBytes;
        piece.bytes -= kLineBytes;
      }
    }
  }

  // What no step has asked for yet.
  absl::Span<const Piece> left() const {
    return absl::MakeConstSpan(pieces_).subspan(first_, end_ - first_);
  }

  // The tensors that a product of rows is made of: two for the gradient, two for the value.
  static constexpr size_t kMaxPieces = 4;
  // About as many lines as a core of today can wait for at once.
  static constexpr int kLinesPerStep = 32;
  static constexpr int64_t kLineBytes = 64;

 private:
  std::array<Piece, kMaxPieces> pieces_;  // those in [first_, end_) are set
  size_t first_ = 0;
  size_t end_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_PREFETCHER_H_
