#include "worker/client/exact_elements.h"

#include <algorithm>
#include <cmath>

namespace pushpull {

void ExactElements::ForEachIn(const ElementRange& chunk,
                              absl::FunctionRef<void(int64_t begin, int64_t end)> visit) const {
  auto range = std::partition_point(ranges_.begin(), ranges_.end(),
                                    [&](const ElementRange& r) { return r.end <= chunk.begin; });
  for (; range != ranges_.end() && range->begin < chunk.end; ++range) {
    visit(std::max(range->begin, chunk.begin) - chunk.begin,
          std::min(range->end, chunk.end) - chunk.begin);
  }
}

bool ExactElements::Overlap(const ElementRange& chunk) const {
  bool overlap = false;
  ForEachIn(chunk, [&](int64_t, int64_t) { overlap = true; });
  return overlap;
}

void ExactElements::RoundOthers(const GradientCodec& codec, EncodeFn encode, int64_t first,
                                absl::Span<float> chunk) const {
  const auto size = static_cast<int64_t>(chunk.size());
  const ElementRange range{first, first + size};
  const std::vector<float> exact(chunk.begin(), chunk.end());
  ForEachIn(range, [&](int64_t begin, int64_t end) {
    std::fill(chunk.begin() + begin, chunk.begin() + end, 0.0f);
  });
  std::vector<char> bytes(codec.EncodedBytes(size));
  encode(chunk, bytes.data());
  codec.Decode(bytes.data(), size, 0, size, chunk.data());
  // In an encoding with blocks, a value that is not finite makes its whole block decode so. The
  // server refuses the chunk and names the first such element, which must not be a finite one that
  // only shares its block. The values before it do not matter, since nobody uses them.
  const int64_t not_finite = codec.FindNonFinite(bytes.data(), size);
  for (int64_t i = 0; not_finite < size && i < not_finite; ++i) {
    if (!std::isfinite(chunk[i])) chunk[i] = 0.0f;
  }
  ForEachIn(range, [&](int64_t begin, int64_t end) {
    std::copy(exact.begin() + begin, exact.begin() + end, chunk.begin() + begin);
  });
}

ExactElements ExactElementsOf(const VariableLayout& layout) {
  std::vector<ElementRange> ranges;
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    const VariableSpec& variable = layout.variables()[i];
    if (variable.kind != VariableKind::kMovingStatistic) continue;
    if (variable.moving_average_decay != 0.0f) continue;
    ranges.push_back({layout.offset(i), layout.offset(i) + layout.num_elements(i)});
  }
  return ExactElements(std::move(ranges));
}

}  // namespace pushpull
