// LD_PRELOAD library that records in which order a program writes, syncs and renames files. It does
// not change the calls.
//
// PUSHPULL_FILE_CALLS names the file to which lines are appended, and PUSHPULL_FILE_CALLS_UNDER the
// folder whose files are recorded. There is one line per successful call, in the order in which the
// calls ended:
//   write PATH
//   sync PATH          fsync or fdatasync, of a file or a folder
//   rename FROM TO
//   exchange A B       renameat2 with RENAME_EXCHANGE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

bool IsOfInterest(const char* path) {
  static const char* const folder = getenv("PUSHPULL_FILE_CALLS_UNDER");
  return folder != nullptr && strncmp(path, folder, strlen(folder)) == 0;
}

void Append(const char* line, size_t size) {
  static const int file = [] {
    const char* const path = getenv("PUSHPULL_FILE_CALLS");
    return path == nullptr ? -1 : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  }();
  // Not write(), because this library replaces it.
  if (file >= 0) syscall(SYS_write, file, line, size);
}

void Record(const char* what, const char* first, const char* second = nullptr) {
  if (!IsOfInterest(first) && (second == nullptr || !IsOfInterest(second))) return;
  const int error = errno;
  char line[2 * PATH_MAX + 32];
  const int size = second == nullptr
                       ? snprintf(line, sizeof(line), "%s %s\n", what, first)
                       : snprintf(line, sizeof(line), "%s %s %s\n", what, first, second);
  Append(line, size);
  errno = error;
}

void RecordDescriptor(const char* what, int descriptor) {
  const int error = errno;
  char link[32];
  char path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  if (size > 0) {
    path[size] = '\0';
    Record(what, path);
  }
  errno = error;
}

template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* data, size_t size) {
  static const auto real = Real<ssize_t (*)(int, const void*, size_t)>("write");
  const ssize_t written = real(descriptor, data, size);
  if (written >= 0) RecordDescriptor("write", descriptor);
  return written;
}

int fsync(int descriptor) {
  static const auto real = Real<int (*)(int)>("fsync");
  const int result = real(descriptor);
  if (result == 0) RecordDescriptor("sync", descriptor);
  return result;
}

int fdatasync(int descriptor) {
  static const auto real = Real<int (*)(int)>("fdatasync");
  const int result = real(descriptor);
  if (result == 0) RecordDescriptor("sync", descriptor);
  return result;
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = Real<int (*)(const char*, const char*)>("rename");
  const int result = real(from, to);
  if (result == 0) Record("rename", from, to);
  return result;
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned int flags) noexcept {
  static const auto real =
      Real<int (*)(int, const char*, int, const char*, unsigned int)>("renameat2");
  const int result = real(from_folder, from, to_folder, to, flags);
  if (result == 0) Record((flags & RENAME_EXCHANGE) != 0 ? "exchange" : "rename", from, to);
  return result;
}
}
