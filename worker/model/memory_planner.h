// Places buffers with known lifetimes in one block of memory. Buffers that are in use at the same
// time never overlap, and the block is kept small. Plain values and a pure function.
#ifndef PUSHPULL_WORKER_MODEL_MEMORY_PLANNER_H_
#define PUSHPULL_WORKER_MODEL_MEMORY_PLANNER_H_

#include <cstdint>
#include <vector>

namespace pushpull {

// Asks for `size` units of memory from step `first_step` to step `last_step`, both included. The
// caller chooses the unit. A request with last_step < first_step is never used and takes no memory.
struct BufferRequest {
  int64_t size = 0;
  int first_step = 0;
  int last_step = -1;
};

struct BufferPlan {
  static constexpr int64_t kAbsent = -1;
  std::vector<int64_t> offsets;  // per request; kAbsent if it is never used or has size 0
  int64_t total = 0;             // size of the block, in the unit of the requests
};

// Places the largest request first, and each at the lowest offset that is free during its
// lifetime. Offsets are multiples of `alignment`.
BufferPlan PlanBuffers(const std::vector<BufferRequest>& requests, int64_t alignment);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_MEMORY_PLANNER_H_
