#include "kernels/cuda/emulation/work_queues.h"

#include <utility>

#include "glog/logging.h"

namespace pushpull::emulated_cuda {
namespace {

void RunFirst(EmulatedWork* work) {
  const EmulatedWork::Piece next = std::move(work->waiting.front());
  work->waiting.pop_front();
  ++work->done;
  if (next.awaited != nullptr) {
    RunUntil(next.awaited.get(), next.place);
  } else {
    next.run();
  }
}

// Whether a queue has a piece that may run now.
bool IsReady(const EmulatedWork& work) {
  if (work.waiting.empty()) return false;
  const EmulatedWork::Piece& next = work.waiting.front();
  return next.awaited == nullptr || next.awaited->done >= next.place;
}

}  // namespace

void RunUntil(EmulatedWork* work, int64_t place) {
  while (work->done < place) RunFirst(work);
}

bool Interleaving::Step(const Queues& queues) {
  Queues ready;
  bool goes_on = false;
  for (const auto& queue : queues) {
    if (!IsReady(*queue)) continue;
    ready.push_back(queue);
    goes_on = goes_on || queue == last_;
  }
  if (ready.empty()) return false;
  // Mostly goes on with the same queue, so that others fall far behind.
  if (!goes_on || random_() % 4 == 0) last_ = ready[random_() % ready.size()];
  RunFirst(last_.get());
  return true;
}

void Interleaving::RunSome(const Queues& queues) {
  if (random_() % calls_per_run_ != 0) return;
  for (unsigned count = 1 + random_() % 3; count > 0 && Step(queues); --count) {
  }
}

void Interleaving::RunUntil(const Queues& queues, EmulatedWork* work, int64_t place) {
  RunSome(queues);
  while (work->done < place) {
    CHECK(Step(queues)) << "streams wait for each other";
  }
}

}  // namespace pushpull::emulated_cuda
