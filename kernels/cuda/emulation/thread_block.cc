#include "kernels/cuda/emulation/thread_block.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <csetjmp>
#include <cstdlib>
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
// The stacks begin at different distances from a page's end. Otherwise their first bytes, which all
// threads of a block use by turns, would be in the same few sets of the processor's caches.
constexpr size_t kStackPlaces = 61, kStackShift = 17 * 64;
constexpr unsigned kWarpSize = RaceDetector::kWarpSize;
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxGridSide = 65535;  // in y and z
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
  LaneValues values[2][kWarpSize] = {};
};

class BlockRunner;
// What runs the grids of the calling thread of the host. Null before the first.
constinit thread_local BlockRunner* runner = nullptr;

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
    grid_size_ = grid;
    block_size_ = block;
    count_ = block.x * block.y * block.z;
    CHECK(count_ >= 1 && count_ <= kMaxThreads)
        << kernel << ": blocks of " << count_ << " threads, allowed are 1 to " << kMaxThreads;
    CHECK(grid.y <= kMaxGridSide && grid.z <= kMaxGridSide)
        << kernel << ": a grid of " << grid.x << " x " << grid.y << " x " << grid.z
        << " blocks, but CUDA allows " << kMaxGridSide << " in y and z";
    while (fibers_.size() < count_) AddFiber();
    // Rounded up to no more than 16 bytes, so that AddressSanitizer finds accesses past its end.
    const size_t rounded = std::max<size_t>((shared_bytes + 15) / 16 * 16, 16);
    const size_t allocated = rounded + 2 * kSharedGuardBytes;
    shared_.reset(static_cast<unsigned char*>(std::aligned_alloc(16, allocated)));
    const bool observes = kObservesAccesses && access_checks == AccessChecks::kOn && ChecksAreOn();
    SetAccessWindow(shared_.get(), observes ? allocated : 0);
    SetInOrder(&block_order_, grid.x * grid.y * grid.z);
    for (const unsigned number : block_order_) {
      block_index_ = {number % grid.x, number / grid.x % grid.y, number / (grid.x * grid.y)};
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
  const Dim3& grid_size() const { return grid_size_; }
  const Dim3& block_size() const { return block_size_; }
  const Dim3& block_index() const { return block_index_; }
  const Dim3& thread_index() const { return fibers_[current_]->index; }
  unsigned char* shared() const { return shared_.get() + kSharedGuardBytes; }
  unsigned lane() const { return current_ % kWarpSize; }

  void SyncThreads() { Yield(State::kAtBlockBarrier); }
  void SyncWarp() { Exchange({}, MemoryOrder::kOrders); }

  // Publishes the lane's values and waits until all lanes of the warp have done so. Returns the
  // values of all lanes, which are valid until the lane's next operation. With kOrders the lanes'
  // accesses to memory before it come before those after it.
  const LaneValues* Exchange(const LaneValues& own, MemoryOrder order = MemoryOrder::kNone) {
    Fiber& fiber = *fibers_[current_];
    Warp& warp = warps_[current_ / kWarpSize];
    if (warp.waiting == 0) warp.order = order;
    CHECK(warp.order == order) << BlockName() << ": some lanes of warp " << current_ / kWarpSize
                               << " are in __syncwarp and others in another warp operation";
    LaneValues* const values = warp.values[fiber.warp_operations++ % 2];
    values[lane()] = own;
    if (++warp.waiting == warp.size) {
      warp.waiting = 0;
      if (order == MemoryOrder::kOrders) races_.PassWarpBarrier(current_ / kWarpSize);
      std::fill_n(&states_[current_ / kWarpSize * kWarpSize], warp.size, State::kReady);
      return values;
    }
    Yield(State::kAtWarpBarrier);
    return values;
  }

  unsigned warp_size() const { return warps_[current_ / kWarpSize].size; }

  void CheckAccess(AccessKind kind, const void* address, size_t bytes) {
    const ptrdiff_t offset = static_cast<const unsigned char*>(address) - shared();
    if (kind == AccessKind::kRead && races_.IsKnownRead(current_, offset, bytes)) return;
    CheckNewAccess(kind, offset, bytes);
  }

 private:
  // Not inlined, so that CheckAccess, which runs at each access, stays short.
  __attribute__((noinline)) void CheckNewAccess(AccessKind kind, ptrdiff_t offset, size_t bytes) {
    AccessError error;
    if (races_.Access(kind, current_, offset, bytes, &error)) return;
    LOG(FATAL) << BlockName() << ": " << error.Text();
  }

  static void Enter() { runner->Loop(); }

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
    fiber->start.uc_stack.ss_size = kStackBytes - fibers_.size() % kStackPlaces * kStackShift;
    fiber->start.uc_link = nullptr;
    makecontext(&fiber->start, &BlockRunner::Enter, 0);
    fibers_.push_back(std::move(fiber));
  }

  // Lets the fibers that come after the running one in this pass over the block go on, or the
  // scheduler if none of them can. Returns when it is this fiber's turn again.
  __attribute__((noinline)) void Yield(State state) {
    Fiber& fiber = *fibers_[current_];
    states_[current_] = state;
    if (_setjmp(fiber.place) != 0) return;
    if (!FindReady()) _longjmp(scheduler_, 1);
    Resume();
  }

  // Runs the current fiber and those after it that can run. Returns at the end of the pass.
  __attribute__((noinline)) void RunPass() {
    if (_setjmp(scheduler_) == 0) Resume();
  }

  // Starts the current fiber or lets it go on. It is left by a jump, so it has no local objects:
  // AddressSanitizer would not notice that they have ended.
  [[noreturn]] void Resume() {
    Fiber& fiber = *fibers_[current_];
    if (fiber.started) _longjmp(fiber.place, 1);
    fiber.started = true;
    setcontext(&fiber.start);
    std::abort();  // setcontext has failed, since it returned
  }

  // Makes the next fiber of this pass that can run the current one, or returns false.
  bool FindReady() {
    while (position_ < count_) {
      const unsigned t = order_[position_++];
      if (states_[t] != State::kReady) continue;
      current_ = t;
      return true;
    }
    return false;
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
    const Dim3& size = block_size_;
    warps_.assign((count_ + kWarpSize - 1) / kWarpSize, Warp());
    for (unsigned t = 0; t < count_; ++t) {
      Fiber& fiber = *fibers_[t];
      fiber.index = {t % size.x, t / size.x % size.y, t / (size.x * size.y)};
      fiber.warp_operations = 0;
      ++warps_[t / kWarpSize].size;
    }
    states_.assign(count_, State::kReady);
    SetInOrder(&order_, count_);
    do {
      for (position_ = 0; FindReady(); position_ = 0) RunPass();
    } while (PassBarrier());
  }

  std::string BlockName() const {
    return absl::StrCat(kernel_, ", block ", block_index_.x, " ", block_index_.y, " ",
                        block_index_.z);
  }

  // Called when no fiber can run. If all wait at the block's barrier, lets them go on and returns
  // true. If all have ended, returns false. Everything else is an error of the kernel.
  bool PassBarrier() {
    unsigned at_barrier = 0, in_warp = 0, done = 0;
    for (const State state : states_) {
      at_barrier += state == State::kAtBlockBarrier;
      in_warp += state == State::kAtWarpBarrier;
      done += state == State::kDone;
    }
    if (done == count_) return false;
    CHECK(at_barrier == count_) << BlockName() << ": " << at_barrier
                                << " threads wait at a barrier, " << in_warp
                                << " in a warp operation, and " << done << " have ended";
    races_.PassBlockBarrier();
    std::fill(states_.begin(), states_.end(), State::kReady);
    return true;
  }

  struct FreeDeleter {
    void operator()(unsigned char* p) const { std::free(p); }
  };

  bool running_ = false;
  const char* kernel_ = "";
  const std::function<void()>* thread_ = nullptr;
  Dim3 grid_size_, block_size_, block_index_{0, 0, 0};
  unsigned count_ = 0;                 // of the threads of a block
  unsigned current_ = 0;               // the running thread
  unsigned position_ = 0;              // in order_, after it
  std::vector<unsigned> block_order_;  // of the grid
  std::vector<unsigned> order_;        // of the threads of the block
  std::mt19937 random_;                // always begins with the same seed
  jmp_buf scheduler_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<State> states_;  // by thread, as fibers_
  std::vector<Warp> warps_;
  std::unique_ptr<unsigned char, FreeDeleter> shared_;  // with its guards
  RaceDetector races_;
};

}  // namespace

void SetThreadOrder(ThreadOrder order) { thread_order = order; }
void SetAccessChecks(AccessChecks checks) { access_checks = checks; }

uint64_t PackedThreadIndex() { return Pack(runner->thread_index()); }
uint64_t PackedBlockIndex() { return Pack(runner->block_index()); }
uint64_t PackedBlockSize() { return Pack(runner->block_size()); }
uint64_t PackedGridSize() { return Pack(runner->grid_size()); }
unsigned LaneId() { return runner->lane(); }

void RunGrid(const char* kernel, Dim3 grid, Dim3 block, size_t shared_bytes,
             const std::function<void()>& thread) {
  thread_local BlockRunner own;
  runner = &own;
  own.Run(kernel, grid, block, shared_bytes, thread);
}

unsigned char* SharedMemory() { return runner->shared(); }

void SyncThreads() { runner->SyncThreads(); }

void SyncWarp() { runner->SyncWarp(); }

uint64_t ShuffleBits(uint64_t value, unsigned source_lane) {
  const LaneValues* const lanes = runner->Exchange({{value}});
  return source_lane < runner->warp_size() ? lanes[source_lane].values[0] : value;
}

const LaneValues* GatherWarp(const LaneValues& own) { return runner->Exchange(own); }

void CheckMask(unsigned mask) {
  const unsigned lanes = runner->warp_size() == kWarpSize ? ~0u : (1u << runner->warp_size()) - 1;
  CHECK_EQ(mask & lanes, lanes) << runner->kernel() << ": the mask of a warp operation is "
                                << std::hex << mask << ", which leaves out lanes that take part";
}

void CheckSharedAccess(AccessKind kind, const void* address, size_t bytes) {
  runner->CheckAccess(kind, address, bytes);
}

void CheckAlignment(const void* address, size_t bytes) {
  CHECK_EQ(reinterpret_cast<uintptr_t>(address) % bytes, 0u)
      << runner->kernel() << ": access to " << bytes << " bytes at " << address;
}

}  // namespace pushpull::emulation
