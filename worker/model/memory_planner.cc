#include "worker/model/memory_planner.h"

#include <algorithm>
#include <numeric>

namespace pushpull {
namespace {

bool Wanted(const BufferRequest& request) {
  return request.size > 0 && request.last_step >= request.first_step;
}

bool Overlap(const BufferRequest& a, const BufferRequest& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

struct Range {
  int64_t begin;
  int64_t end;
};

// The lowest offset at which `size` units overlap none of the ranges.
int64_t LowestGap(std::vector<Range> taken, int64_t size) {
  std::sort(taken.begin(), taken.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  int64_t offset = 0;
  for (const Range& range : taken) {
    if (offset + size <= range.begin) break;
    offset = std::max(offset, range.end);
  }
  return offset;
}

}  // namespace

BufferPlan PlanBuffers(const std::vector<BufferRequest>& requests, int64_t alignment) {
  BufferPlan plan;
  plan.offsets.assign(requests.size(), BufferPlan::kAbsent);
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return requests[a].size > requests[b].size; });
  const auto aligned = [&](int64_t size) { return (size + alignment - 1) / alignment * alignment; };
  std::vector<size_t> placed;
  for (const size_t i : order) {
    if (!Wanted(requests[i])) continue;
    std::vector<Range> taken;
    for (const size_t j : placed) {
      if (Overlap(requests[i], requests[j])) {
        taken.push_back({plan.offsets[j], plan.offsets[j] + aligned(requests[j].size)});
      }
    }
    const int64_t size = aligned(requests[i].size);
    plan.offsets[i] = LowestGap(std::move(taken), size);
    plan.total = std::max(plan.total, plan.offsets[i] + size);
    placed.push_back(i);
  }
  return plan;
}

}  // namespace pushpull
