// LD_PRELOAD library that makes a program read another wall clock than the kernel's. It shows how
// the program's waits behave when somebody sets the date: the program computes the end of a wait
// from the shifted clock, and the kernel compares it with its own clock. A program whose clock is
// an hour ahead waits an hour too long, exactly as if the date had been set back by an hour during
// the wait; a program whose clock is behind does not wait at all.
//
// PUSHPULL_CLOCK_SHIFT_FILE names a file that holds the shift: eight bytes, a signed number of
// nanoseconds in the machine's byte order. The file is mapped, so the shift may change at any time.
// PUSHPULL_CLOCK_SHIFT_SECONDS gives a constant shift instead. Steady clocks are not shifted.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace {

constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;

const std::atomic<int64_t>* MapShift() {
  const char* const seconds = getenv("PUSHPULL_CLOCK_SHIFT_SECONDS");
  static const std::atomic<int64_t> constant =
      seconds == nullptr ? 0 : strtoll(seconds, nullptr, 10) * kNanosecondsPerSecond;
  const char* const path = getenv("PUSHPULL_CLOCK_SHIFT_FILE");
  const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return &constant;
  void* const mapped = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  return mapped == MAP_FAILED ? &constant : static_cast<const std::atomic<int64_t>*>(mapped);
}

int64_t Shift() {
  static const std::atomic<int64_t>* const shift = MapShift();
  return shift->load(std::memory_order_relaxed);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  using Function = int (*)(clockid_t, timespec*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, time);
  if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
  const int64_t nanoseconds = time->tv_sec * kNanosecondsPerSecond + time->tv_nsec + Shift();
  time->tv_sec = nanoseconds / kNanosecondsPerSecond;
  time->tv_nsec = nanoseconds % kNanosecondsPerSecond;
  return 0;
}

int gettimeofday(timeval* time, void* /*zone*/) noexcept {
  timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) noexcept {
  timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}
}
