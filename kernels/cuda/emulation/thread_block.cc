#include "kernels/cuda/emulation/thread_block.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "kernels/cuda/emulation/async_copies.h"
#include "kernels/cuda/emulation/checks.h"
#include "kernels/cuda/emulation/race_detector.h"
#include "kernels/cuda/emulation/shared_accesses.h"

namespace pushpull::emulation {
namespace {

constexpr size_t kStackBytes = 256 * 1024;
constexpr unsigned kWarpSize = RaceDetector::kWarpSize;
constexpr unsigned kMaxThreads = 1024;
// On either side of shared memory, so that accesses close to it are found. In a build that does not
// observe accesses there is none: AddressSanitizer then finds those past the end.
constexpr size_t kSharedGuardBytes = kObservesAccesses ? 4096 : 0;

thread_local ThreadOrder thread_order = ThreadOrder::kForward;
thread_local AccessChecks access_checks = AccessChecks::kOn;

enum class State { kReady, kAtBlockBarrier, kAtWarpBarrier, kDone };

// One emulated thread. A fiber starts by setcontext and afterwards switches by _longjmp, which
// needs no system call, whereas swapcontext would save the signal mask by one each time.
struct Fiber {
  ucontext_t start;
  jmp_buf place;
  bool started = false;
  void* stack = nullptr;
  State state = State::kDone;
  Dim3 index;
  unsigned warp_operations = 0;
};

enum class MemoryOrder { kNone, kOrders };

struct Warp {
  unsigned size = 0;
  unsigned waiting = 0;
  MemoryOrder order = MemoryOrder::kNone;  // of the operation that lanes wait in
  // Operations use the two rows by turns: a lane may already write for the next operation while
  // another lane still reads the values of this one.
  uint64_t values[2][kWarpSize];
};

class BlockRunner {
 public:
  ~BlockRunner() {
    for (const auto& fiber : fibers_) munmap(fiber->stack, kStackBytes);
  }

  void Run(const char* kernel, Dim3 grid, Dim3 block, size_t shared_bytes,
           const std::function<void()>& thread) {
    CHECK(!running_) << kernel << " is launched from within a kernel";
    running_ = true;
    kernel_ = kernel;
    thread_ = &thread;
    place_.grid_size = grid;
    place_.block_size = block;
    count_ = block.x * block.y * block.z;
    CHECK(count_ >= 1 && count_ <= kMaxThreads)
        << kernel << ": blocks of " << count_ << " threads, allowed are 1 to " << kMaxThreads;
    while (fibers_.size() < count_) AddFiber();
    // Rounded up to no more than 16 bytes, so that AddressSanitizer finds accesses past its end.
    const size_t rounded = std::max<size_t>((shared_bytes + 15) / 16 * 16, 16);
    const size_t allocated = rounded + 2 * kSharedGuardBytes;
    shared_.reset(static_cast<unsigned char*>(std::aligned_alloc(16, allocated)));
    const bool observes = kObservesAccesses && access_checks == AccessChecks::kOn && ChecksAreOn();
    SetAccessWindow(shared_.get(), observes ? allocated : 0);
    SetInOrder(&block_order_, grid.x * grid.y * grid.z);
    for (const unsigned number : block_order_) {
      place_.block_index = {number % grid.x, number / grid.x % grid.y, number / (grid.x * grid.y)};
      std::memset(shared(), 0xff, shared_bytes);
      races_.StartBlock(observes ? shared_bytes : 0, count_);
      BeginAsyncCopies();
      RunBlock();
      EndAsyncCopies(kernel);
    }
    SetAccessWindow(nullptr, 0);
    running_ = false;
  }

  const char* kernel() const { return kernel_; }
  const ThreadPlace& place() const { return place_; }
  unsigned char* shared() const { return shared_.get() + kSharedGuardBytes; }
  unsigned lane() const { return current_ % kWarpSize; }

  void SyncThreads() { Yield(State::kAtBlockBarrier); }
  void SyncWarp() { Exchange(0, MemoryOrder::kOrders); }

  // Publishes the lane's value and waits until all lanes of the warp have done so. Returns the
  // values of all lanes, which are valid until the lane's next operation but one. With kOrders the
  // lanes' accesses to memory before it come before those after it.
  const uint64_t* Exchange(uint64_t value, MemoryOrder order = MemoryOrder::kNone) {
    Fiber& fiber = *fibers_[current_];
    Warp& warp = warps_[current_ / kWarpSize];
    if (warp.waiting == 0) warp.order = order;
    CHECK(warp.order == order) << BlockName() << ": some lanes of warp " << current_ / kWarpSize
                               << " are in __syncwarp and others in another warp operation";
    uint64_t* const values = warp.values[fiber.warp_operations++ % 2];
    values[lane()] = value;
    if (++warp.waiting == warp.size) {
      warp.waiting = 0;
      if (order == MemoryOrder::kOrders) races_.PassWarpBarrier(current_ / kWarpSize);
      const unsigned first = current_ / kWarpSize * kWarpSize;
      for (unsigned t = first; t < first + warp.size; ++t) {
        if (t != current_) fibers_[t]->state = State::kReady;
      }
      return values;
    }
    Yield(State::kAtWarpBarrier);
    return values;
  }

  unsigned warp_size() const { return warps_[current_ / kWarpSize].size; }

  void CheckAccess(AccessKind kind, const void* address, size_t bytes) {
    const ptrdiff_t offset = static_cast<const unsigned char*>(address) - shared();
    AccessError error;
    if (races_.Access(kind, current_, offset, bytes, &error)) return;
    LOG(FATAL) << BlockName() << ": " << error.Text();
  }

 private:
  static void Enter() { Instance()->Loop(); }

  void Loop() {
    for (;;) {
      (*thread_)();
      Yield(State::kDone);
    }
  }

  void AddFiber() {
    auto fiber = std::make_unique<Fiber>();
    fiber->stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(fiber->stack != MAP_FAILED) << "no memory for the stack of an emulated thread";
    getcontext(&fiber->start);
    fiber->start.uc_stack.ss_sp = fiber->stack;
    fiber->start.uc_stack.ss_size = kStackBytes;
    fiber->start.uc_link = nullptr;
    makecontext(&fiber->start, &BlockRunner::Enter, 0);
    fibers_.push_back(std::move(fiber));
  }

  __attribute__((noinline)) void Yield(State state) {
    Fiber& fiber = *fibers_[current_];
    fiber.state = state;
    if (_setjmp(fiber.place) == 0) _longjmp(scheduler_, 1);
  }

  // Runs a fiber until it yields.
  __attribute__((noinline)) void Resume(Fiber* fiber) {
    if (_setjmp(scheduler_) != 0) return;
    if (fiber->started) _longjmp(fiber->place, 1);
    fiber->started = true;
    setcontext(&fiber->start);
  }

  // Fills `numbers` with 0 ... count - 1 in the order that SetThreadOrder has set.
  void SetInOrder(std::vector<unsigned>* numbers, unsigned count) {
    numbers->resize(count);
    std::iota(numbers->begin(), numbers->end(), 0u);
    if (thread_order == ThreadOrder::kBackward) std::reverse(numbers->begin(), numbers->end());
    if (thread_order == ThreadOrder::kShuffled) {
      std::shuffle(numbers->begin(), numbers->end(), random_);
    }
  }

  void RunBlock() {
    const Dim3& size = place_.block_size;
    warps_.assign((count_ + kWarpSize - 1) / kWarpSize, Warp());
    for (unsigned t = 0; t < count_; ++t) {
      Fiber& fiber = *fibers_[t];
      fiber.state = State::kReady;
      fiber.index = {t % size.x, t / size.x % size.y, t / (size.x * size.y)};
      fiber.warp_operations = 0;
      ++warps_[t / kWarpSize].size;
    }
    SetInOrder(&order_, count_);
    for (;;) {
      bool progress = false;
      for (const unsigned t : order_) {
        if (fibers_[t]->state != State::kReady) continue;
        progress = true;
        current_ = t;
        place_.thread_index = fibers_[t]->index;
        Resume(fibers_[t].get());
      }
      if (!progress && !PassBarrier()) return;
    }
  }

  std::string BlockName() const {
    const Dim3& index = place_.block_index;
    return absl::StrCat(kernel_, ", block ", index.x, " ", index.y, " ", index.z);
  }

  // Called when no fiber can run. If all wait at the block's barrier, lets them go on and returns
  // true. If all have ended, returns false. Everything else is an error of the kernel.
  bool PassBarrier() {
    unsigned at_barrier = 0, in_warp = 0, done = 0;
    for (unsigned t = 0; t < count_; ++t) {
      at_barrier += fibers_[t]->state == State::kAtBlockBarrier;
      in_warp += fibers_[t]->state == State::kAtWarpBarrier;
      done += fibers_[t]->state == State::kDone;
    }
    if (done == count_) return false;
    CHECK(at_barrier == count_) << BlockName() << ": " << at_barrier
                                << " threads wait at a barrier, " << in_warp
                                << " in a warp operation, and " << done << " have ended";
    races_.PassBlockBarrier();
    for (unsigned t = 0; t < count_; ++t) fibers_[t]->state = State::kReady;
    return true;
  }

 public:
  static BlockRunner* Instance() {
    thread_local BlockRunner runner;
    return &runner;
  }

 private:
  struct FreeDeleter {
    void operator()(unsigned char* p) const { std::free(p); }
  };

  bool running_ = false;
  const char* kernel_ = "";
  const std::function<void()>* thread_ = nullptr;
  ThreadPlace place_;
  unsigned count_ = 0;
  unsigned current_ = 0;
  std::vector<unsigned> block_order_;  // of the grid
  std::vector<unsigned> order_;        // of the threads of the block
  std::mt19937 random_;                // always begins with the same seed
  jmp_buf scheduler_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  std::unique_ptr<unsigned char, FreeDeleter> shared_;  // with its guards
  RaceDetector races_;
};

}  // namespace

void SetThreadOrder(ThreadOrder order) { thread_order = order; }
void SetAccessChecks(AccessChecks checks) { access_checks = checks; }

const ThreadPlace& CurrentPlace() { return BlockRunner::Instance()->place(); }

void RunGrid(const char* kernel, Dim3 grid, Dim3 block, size_t shared_bytes,
             const std::function<void()>& thread) {
  BlockRunner::Instance()->Run(kernel, grid, block, shared_bytes, thread);
}

unsigned char* SharedMemory() { return BlockRunner::Instance()->shared(); }

void SyncThreads() { BlockRunner::Instance()->SyncThreads(); }

void SyncWarp() { BlockRunner::Instance()->SyncWarp(); }

uint64_t ShuffleBits(uint64_t value, unsigned source_lane) {
  BlockRunner* const runner = BlockRunner::Instance();
  const uint64_t* const values = runner->Exchange(value);
  return source_lane < runner->warp_size() ? values[source_lane] : value;
}

void GatherWarp(uint64_t value, uint64_t values[32]) {
  BlockRunner* const runner = BlockRunner::Instance();
  const uint64_t* const all = runner->Exchange(value);
  for (unsigned l = 0; l < kWarpSize; ++l) values[l] = l < runner->warp_size() ? all[l] : 0;
}

unsigned LaneId() { return BlockRunner::Instance()->lane(); }

void CheckMask(unsigned mask) {
  const BlockRunner& runner = *BlockRunner::Instance();
  const unsigned lanes = runner.warp_size() == kWarpSize ? ~0u : (1u << runner.warp_size()) - 1;
  CHECK_EQ(mask & lanes, lanes) << runner.kernel() << ": the mask of a warp operation is "
                                << std::hex << mask << ", which leaves out lanes that take part";
}

void CheckSharedAccess(AccessKind kind, const void* address, size_t bytes) {
  BlockRunner::Instance()->CheckAccess(kind, address, bytes);
}

void CheckAlignment(const void* address, size_t bytes) {
  CHECK_EQ(reinterpret_cast<uintptr_t>(address) % bytes, 0u)
      << BlockRunner::Instance()->kernel() << ": access to " << bytes << " bytes at " << address;
}

}  // namespace pushpull::emulation
