// The queues of work of the emulated streams, and the orders in which they run.
//
// CUDA promises only that the work of a stream runs in the order of its calls, and that a stream
// waits for an event where it was told to. RunUntil runs work as late as that allows. An
// Interleaving runs it in an order drawn by chance.
//
// Thread rule: one thread at a time uses the queues.
#ifndef PUSHPULL_KERNELS_CUDA_EMULATION_WORK_QUEUES_H_
#define PUSHPULL_KERNELS_CUDA_EMULATION_WORK_QUEUES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

namespace pushpull::emulated_cuda {

// The work of a stream that has not run yet. It outlives the stream, because events refer to it.
struct EmulatedWork {
  // Work, or a wait until the queue `awaited` has done its first `place` pieces.
  struct Piece {
    std::function<void()> run;
    std::shared_ptr<EmulatedWork> awaited;
    int64_t place = 0;
  };
  std::deque<Piece> waiting;
  int64_t done = 0;  // pieces

  int64_t end() const { return done + static_cast<int64_t>(waiting.size()); }
};

// Runs the queue's first `place` pieces and, from other queues, only what they wait for.
void RunUntil(EmulatedWork* work, int64_t place);

class Interleaving {
 public:
  using Queues = std::vector<std::shared_ptr<EmulatedWork>>;

  // The same seed and the same calls give the same order. The seed also decides how lazy the
  // streams are: whether they keep up with the host, or nearly everything runs when it waits.
  explicit Interleaving(uint32_t seed) : random_(seed), calls_per_run_(1u << random_() % 9) {}

  // Runs one or several pieces of the queues, or none if the streams are lazy.
  void RunSome(const Queues& queues);
  // Runs pieces of the queues until `work`, which is one of them, has done its first `place` ones.
  void RunUntil(const Queues& queues, EmulatedWork* work, int64_t place);

 private:
  // Runs one piece of a queue that need not wait. Returns false if there is none.
  bool Step(const Queues& queues);

  std::mt19937 random_;
  const uint32_t calls_per_run_;        // RunSome runs something in one of so many calls
  std::shared_ptr<EmulatedWork> last_;  // the queue of the last piece
};

}  // namespace pushpull::emulated_cuda

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_WORK_QUEUES_H_
