// LD_PRELOAD library that makes chosen system calls of an unchanged program fail, end the process
// or take long, and that shifts the program's wall clock. The campaign (scripts/campaign) uses it,
// and scripts/campaign/fault_shim.py writes its inputs:
//
//   PUSHPULL_FAULT_ROOTS    folders, separated by ':'. Only calls on paths below them count.
//   PUSHPULL_FAULT_RULES    rules, separated by ';', each `operation|glob|nth|action`. A rule acts
//                           on the nth call (from 1) of the operation on a path that fits the glob.
//                           Actions: an errno as a number; `short` (a write stores half of its
//                           bytes); `kill` (SIGKILL right after the call).
//   PUSHPULL_FAULT_RECORD   a file; every counted call appends a line `operation path`.
//   PUSHPULL_FAULT_CONTROL  a file that holds a Control, which the campaign may change while the
//                           program runs.
//
// The Control counts the rules and the random faults that took effect.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

// The layout must match CONTROL in fault_shim.py.
struct Control {
  std::atomic<int64_t> clock_offset_ns{0};
  std::atomic<uint32_t> random_share{0};    // of 65536 calls
  std::atomic<uint32_t> random_actions{0};  // sum of RandomAction
  std::atomic<uint32_t> slow_ms{0};
  std::atomic<uint32_t> random_faults{0};  // written by this library
  std::atomic<uint32_t> rules_hit{0};
  std::atomic<uint32_t> seed{0};
};
enum RandomAction : uint32_t {
  kNoSpace = 1,
  kInputOutput = 2,
  kShortWrite = 4,
  kSlowSync = 8,
  kFailedRead = 16,
};

constexpr int kMaxRules = 16;
constexpr int kMaxDescriptors = 4096;
constexpr int64_t kNanosPerSecond = 1000000000;
constexpr int64_t kWaitSliceNanos = 20000000;

struct Rule {
  char operation[16] = {};
  char glob[512] = {};
  uint32_t nth = 0;
  int error = 0;  // 0: shorten or kill
  bool shorten = false;
  bool kill = false;
  std::atomic<uint32_t> seen{0};
};

struct Settings {
  char roots[PATH_MAX] = {};
  Rule rules[kMaxRules] = {};
  int num_rules = 0;
  int record_fd = -1;
  Control* control = nullptr;
  Control own{};
};

// Libraries that are loaded earlier may call these functions before this library's constructor
// runs.
constinit Settings settings;
// Paths of the open files below the roots. An entry is written before anybody knows its descriptor.
char* paths[kMaxDescriptors];
std::atomic<bool> ready{false};

// Makes a system call directly, because this library replaces the C library's functions. Returns
// -errno on failure.
int64_t Raw(int64_t number, int64_t a = 0, int64_t b = 0, int64_t c = 0, int64_t d = 0,
            int64_t e = 0, int64_t f = 0) {
  int64_t result;
  register int64_t r10 __asm__("r10") = d;
  register int64_t r8 __asm__("r8") = e;
  register int64_t r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

int64_t Ptr(const void* pointer) { return reinterpret_cast<int64_t>(pointer); }

int64_t Finish(int64_t result) {
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

void ParseRule(char* text) {
  if (settings.num_rules == kMaxRules) return;
  Rule& rule = settings.rules[settings.num_rules];
  char* rest = nullptr;
  const char* operation = strtok_r(text, "|", &rest);
  const char* glob = strtok_r(nullptr, "|", &rest);
  const char* nth = strtok_r(nullptr, "|", &rest);
  const char* action = strtok_r(nullptr, "|", &rest);
  if (action == nullptr) return;
  snprintf(rule.operation, sizeof(rule.operation), "%s", operation);
  snprintf(rule.glob, sizeof(rule.glob), "%s", glob);
  rule.nth = static_cast<uint32_t>(atoi(nth));
  rule.kill = strcmp(action, "kill") == 0;
  rule.shorten = strcmp(action, "short") == 0;
  rule.error = rule.kill || rule.shorten ? 0 : atoi(action);
  ++settings.num_rules;
}

Control* MapControl(const char* path) {
  const int64_t fd = Raw(SYS_openat, AT_FDCWD, Ptr(path), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  const int64_t page = Raw(SYS_mmap, 0, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  Raw(SYS_close, fd);
  return page < 0 ? nullptr : reinterpret_cast<Control*>(page);
}

__attribute__((constructor)) void Begin() {
  if (const char* roots = getenv("PUSHPULL_FAULT_ROOTS")) {
    snprintf(settings.roots, sizeof(settings.roots), "%s", roots);
  }
  if (const char* rules = getenv("PUSHPULL_FAULT_RULES")) {
    char* copy = strdup(rules);
    char* rest = nullptr;
    for (char* rule = strtok_r(copy, ";", &rest); rule != nullptr;
         rule = strtok_r(nullptr, ";", &rest)) {
      ParseRule(rule);
    }
    free(copy);
  }
  if (const char* record = getenv("PUSHPULL_FAULT_RECORD")) {
    settings.record_fd = static_cast<int>(
        Raw(SYS_openat, AT_FDCWD, Ptr(record), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  }
  settings.control = &settings.own;
  if (const char* control = getenv("PUSHPULL_FAULT_CONTROL")) {
    if (Control* mapped = MapControl(control)) settings.control = mapped;
  }
  ready.store(true, std::memory_order_release);
}

bool BelowRoots(const char* path) {
  for (const char* root = settings.roots; *root != '\0';) {
    const size_t length = strcspn(root, ":");
    if (length > 0 && strncmp(path, root, length) == 0) return true;
    root += length + (root[length] == ':' ? 1 : 0);
  }
  return false;
}

// Returns null if the path is not below the roots.
const char* SeenPath(const char* path) {
  return ready.load(std::memory_order_acquire) && path != nullptr && BelowRoots(path) ? path
                                                                                      : nullptr;
}

const char* SeenDescriptor(int fd) { return fd >= 0 && fd < kMaxDescriptors ? paths[fd] : nullptr; }

void Remember(int64_t fd, const char* path) {
  if (fd < 0 || fd >= kMaxDescriptors) return;
  free(paths[fd]);
  paths[fd] = path == nullptr ? nullptr : strdup(path);
}

void SleepMillis(uint32_t millis) {
  timespec pause{millis / 1000, static_cast<long>(millis % 1000) * 1000000};
  Raw(SYS_nanosleep, Ptr(&pause));
}

// What shall happen to one call.
struct Verdict {
  int error = 0;
  bool shorten = false;
  bool kill = false;
};

Verdict RandomFault(const char* operation) {
  Verdict verdict;
  Control& control = *settings.control;
  const uint32_t share = control.random_share.load(std::memory_order_relaxed);
  if (share == 0) return verdict;
  // SplitMix64 of a counter: needs no lock, and repeats for the same seed and order of calls.
  uint64_t x = control.seed.fetch_add(1, std::memory_order_relaxed) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  if ((x & 0xffff) >= share) return verdict;
  const uint32_t actions = control.random_actions.load(std::memory_order_relaxed);
  const bool write = strcmp(operation, "write") == 0;
  const bool read = strcmp(operation, "read") == 0;
  const bool sync = strcmp(operation, "fsync") == 0;
  if (read) {
    if ((actions & kFailedRead) == 0) return verdict;
    verdict.error = EIO;
  } else if (sync && (actions & kSlowSync) != 0) {
    SleepMillis(control.slow_ms.load(std::memory_order_relaxed));
  } else if (write && (actions & kShortWrite) != 0 && (x >> 16 & 1) != 0) {
    verdict.shorten = true;
  } else if ((actions & kInputOutput) != 0 && (sync || (x >> 17 & 1) != 0)) {
    verdict.error = EIO;
  } else if ((actions & kNoSpace) != 0 && !sync && strcmp(operation, "close") != 0) {
    verdict.error = ENOSPC;
  } else {
    return verdict;
  }
  control.random_faults.fetch_add(1, std::memory_order_relaxed);
  return verdict;
}

void Record(const char* operation, const char* path) {
  if (settings.record_fd < 0) return;
  char line[PATH_MAX + 32];
  const int size = snprintf(line, sizeof(line), "%s %s\n", operation, path);
  if (size > 0) Raw(SYS_write, settings.record_fd, Ptr(line), size);
}

Verdict Judge(const char* operation, const char* path) {
  Record(operation, path);
  Verdict verdict = RandomFault(operation);
  for (int i = 0; i < settings.num_rules; ++i) {
    Rule& rule = settings.rules[i];
    if (strcmp(rule.operation, operation) != 0 || fnmatch(rule.glob, path, 0) != 0) continue;
    if (rule.seen.fetch_add(1) + 1 != rule.nth) continue;
    settings.control->rules_hit.fetch_add(1);
    verdict = {rule.error, rule.shorten, rule.kill};
  }
  return verdict;
}

void EndIfTold(const Verdict& verdict) {
  if (verdict.kill) Raw(SYS_kill, Raw(SYS_getpid), SIGKILL);
}

// Makes a call that returns a number, on a path or descriptor below the roots (null: on another
// one, which is not judged).
template <typename Call>
int64_t Judged(const char* operation, const char* path, Call call) {
  if (path == nullptr) return Finish(call());
  const Verdict verdict = Judge(operation, path);
  const int64_t result = verdict.error != 0 ? -verdict.error : call();
  EndIfTold(verdict);
  return Finish(result);
}

int64_t OpenAt(int folder, const char* path, int flags, mode_t mode) {
  const char* seen = SeenPath(path);
  const bool writing = (flags & (O_WRONLY | O_RDWR)) != 0;
  const auto call = [&] { return Raw(SYS_openat, folder, Ptr(path), flags, mode); };
  const int64_t fd = Judged(writing ? "create" : "open", seen, call);
  if (fd >= 0) Remember(fd, seen);
  return fd;
}

int64_t WriteCall(int fd, size_t size, const auto& call) {
  const char* path = SeenDescriptor(fd);
  if (path == nullptr) return Finish(call(size));
  const Verdict verdict = Judge("write", path);
  const int64_t result =
      verdict.error != 0 ? -verdict.error : call(verdict.shorten && size > 1 ? size / 2 : size);
  EndIfTold(verdict);
  return Finish(result);
}

int64_t NanosOf(const timespec& time) { return time.tv_sec * kNanosPerSecond + time.tv_nsec; }
timespec TimeOf(int64_t nanos) {
  return {nanos / kNanosPerSecond, static_cast<long>(nanos % kNanosPerSecond)};
}

int64_t Offset() {
  return ready.load(std::memory_order_acquire)
             ? settings.control->clock_offset_ns.load(std::memory_order_relaxed)
             : 0;
}

int64_t RealNanos() {
  timespec now;
  Raw(SYS_clock_gettime, CLOCK_REALTIME, Ptr(&now));
  return NanosOf(now);
}

// Waits until a time of the shifted clock. It waits in slices, so that a change of the shift takes
// effect during the wait, as it does in the kernel. wait(time of the kernel's clock) returns an
// errno.
template <typename Wait>
int WaitUntil(const timespec& until, Wait wait) {
  for (;;) {
    const int64_t left = NanosOf(until) - (RealNanos() + Offset());
    const int64_t slice = left < 0 ? 0 : (left < kWaitSliceNanos ? left : kWaitSliceNanos);
    const timespec moment = TimeOf(RealNanos() + slice);
    const int error = wait(&moment);
    if (error != ETIMEDOUT || left <= kWaitSliceNanos) return error;
  }
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  return static_cast<int>(OpenAt(AT_FDCWD, path, flags, mode));
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));

int openat(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  return static_cast<int>(OpenAt(folder, path, flags, mode));
}
int openat64(int folder, const char* path, int flags, ...) __attribute__((alias("openat")));

ssize_t write(int fd, const void* data, size_t size) {
  return WriteCall(fd, size, [&](size_t part) { return Raw(SYS_write, fd, Ptr(data), part); });
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return WriteCall(fd, size,
                   [&](size_t part) { return Raw(SYS_pwrite64, fd, Ptr(data), part, offset); });
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset)
    __attribute__((alias("pwrite")));

ssize_t read(int fd, void* data, size_t size) {
  return Judged("read", SeenDescriptor(fd), [&] { return Raw(SYS_read, fd, Ptr(data), size); });
}
ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  return Judged("read", SeenDescriptor(fd),
                [&] { return Raw(SYS_pread64, fd, Ptr(data), size, offset); });
}
ssize_t pread64(int fd, void* data, size_t size, off64_t offset) __attribute__((alias("pread")));

int fsync(int fd) {
  return Judged("fsync", SeenDescriptor(fd), [&] { return Raw(SYS_fsync, fd); });
}
int fdatasync(int fd) {
  return Judged("fsync", SeenDescriptor(fd), [&] { return Raw(SYS_fdatasync, fd); });
}

int close(int fd) {
  const char* path = SeenDescriptor(fd);
  if (path == nullptr) return Finish(Raw(SYS_close, fd));
  const Verdict verdict = Judge("close", path);
  Remember(fd, nullptr);
  // Linux closes the descriptor whatever close returns.
  const int64_t result = Raw(SYS_close, fd);
  EndIfTold(verdict);
  return Finish(verdict.error != 0 ? -verdict.error : result);
}

int ftruncate(int fd, off_t size) {
  return Judged("truncate", SeenDescriptor(fd), [&] { return Raw(SYS_ftruncate, fd, size); });
}
int ftruncate64(int fd, off64_t size) __attribute__((alias("ftruncate")));

// These two return the error instead of setting errno.
int posix_fallocate(int fd, off_t offset, off_t size) {
  const int64_t result = Judged("allocate", SeenDescriptor(fd),
                                [&] { return Raw(SYS_fallocate, fd, 0, offset, size); });
  return result < 0 ? errno : 0;
}
int posix_fallocate64(int fd, off64_t offset, off64_t size)
    __attribute__((alias("posix_fallocate")));

void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
  const char* path = (flags & MAP_ANONYMOUS) != 0 ? nullptr : SeenDescriptor(fd);
  const int64_t address = Judged("map", path, [&] {
    return Raw(SYS_mmap, Ptr(at), static_cast<int64_t>(size), protection, flags, fd, offset);
  });
  return reinterpret_cast<void*>(address);
}
void* mmap64(void* at, size_t size, int protection, int flags, int fd, off64_t offset)
    __attribute__((alias("mmap")));

int rename(const char* from, const char* to) {
  return Judged("rename", SeenPath(to), [&] { return Raw(SYS_rename, Ptr(from), Ptr(to)); });
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return Judged("rename", SeenPath(to), [&] {
    return Raw(SYS_renameat2, from_folder, Ptr(from), to_folder, Ptr(to), flags);
  });
}
int mkdir(const char* path, mode_t mode) {
  return Judged("mkdir", SeenPath(path), [&] { return Raw(SYS_mkdir, Ptr(path), mode); });
}
int unlink(const char* path) {
  return Judged("unlink", SeenPath(path), [&] { return Raw(SYS_unlink, Ptr(path)); });
}
int rmdir(const char* path) {
  return Judged("unlink", SeenPath(path), [&] { return Raw(SYS_rmdir, Ptr(path)); });
}

// The wall clock is shifted, steady clocks are not.

int clock_gettime(clockid_t clock, timespec* time) {
  const int64_t result = Raw(SYS_clock_gettime, clock, Ptr(time));
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    *time = TimeOf(NanosOf(*time) + Offset());
  }
  return Finish(result);
}

int gettimeofday(timeval* __restrict__ time, void* __restrict__ zone) {
  (void)zone;
  const int64_t nanos = RealNanos() + Offset();
  *time = {nanos / kNanosPerSecond, nanos % kNanosPerSecond / 1000};
  return 0;
}

time_t time(time_t* time) {
  const time_t seconds = (RealNanos() + Offset()) / kNanosPerSecond;
  if (time != nullptr) *time = seconds;
  return seconds;
}

// Abseil's mutexes and condition variables wait through syscall() until a time of the wall clock.
long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  constexpr int kWait = FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME;
  const auto* until = reinterpret_cast<const timespec*>(a[3]);
  if (number == SYS_futex && (a[1] & ~FUTEX_PRIVATE_FLAG) == kWait && until != nullptr) {
    const int error = WaitUntil(*until, [&a](const timespec* moment) {
      return static_cast<int>(-Raw(SYS_futex, a[0], a[1], a[2], Ptr(moment), a[4], a[5]));
    });
    return Finish(error > 0 ? -error : 0);
  }
  return Finish(Raw(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}

int pthread_cond_timedwait(pthread_cond_t* __restrict__ condition,
                           pthread_mutex_t* __restrict__ mutex,
                           const timespec* __restrict__ until) {
  using Function = int (*)(pthread_cond_t*, pthread_mutex_t*, const timespec*);
  static const Function next =
      reinterpret_cast<Function>(dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2"));
  constexpr unsigned kSteadyClock = 2;  // glibc: the condition's clock is CLOCK_MONOTONIC
  if ((condition->__data.__wrefs & kSteadyClock) != 0) return next(condition, mutex, until);
  return WaitUntil(*until, [&](const timespec* moment) { return next(condition, mutex, moment); });
}

}  // extern "C"
