// The elements of the flat vector that every encoding has to keep as they are: moving statistics
// that the server replaces by what the clones push (moving_average_decay = 0). Programs keep whole
// numbers, tables and constants there, and a rounded value would be rounded again in every step.
// A chunk that has such elements is sent as float32, with its other elements rounded as the
// encoding would, so that the result does not depend on where chunks begin.
#ifndef PUSHPULL_WORKER_CLIENT_EXACT_ELEMENTS_H_
#define PUSHPULL_WORKER_CLIENT_EXACT_ELEMENTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

#include "common/model/sharding.h"
#include "common/model/variable_layout.h"
#include "common/wire/gradient_codec.h"

namespace pushpull {

// Immutable and thread-safe.
class ExactElements {
 public:
  // Encodes a chunk to GradientCodec::EncodedBytes(chunk.size()) bytes.
  using EncodeFn = absl::FunctionRef<void(absl::Span<const float> chunk, char* bytes)>;

  // ranges: in ascending order, and none overlaps another.
  explicit ExactElements(std::vector<ElementRange> ranges = {}) : ranges_(std::move(ranges)) {}

  // Returns whether a chunk has such elements.
  bool Overlap(const ElementRange& chunk) const;
  // Gives all other elements of a chunk the values that they have after `encode` and
  // codec.Decode. `encode` gets zeros in the place of the exact elements. first: of the chunk in
  // the flat vector. The first element of `chunk` that is not finite is afterwards the first one
  // that was not finite before; finite elements before it may have become 0.
  void RoundOthers(const GradientCodec& codec, EncodeFn encode, int64_t first,
                   absl::Span<float> chunk) const;

 private:
  // Calls `visit` with the parts of a chunk that are exact, counted from the start of the chunk.
  void ForEachIn(const ElementRange& chunk,
                 absl::FunctionRef<void(int64_t begin, int64_t end)> visit) const;

  std::vector<ElementRange> ranges_;
};

ExactElements ExactElementsOf(const VariableLayout& layout);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_EXACT_ELEMENTS_H_
