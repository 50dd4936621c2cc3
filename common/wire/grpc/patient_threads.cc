#include "common/wire/grpc/patient_threads.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>
#include <ctime>

#include "glog/logging.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PUSHPULL_HAS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PUSHPULL_HAS_SANITIZER 1
#endif

namespace pushpull {

void UsePatientThreads() {}

}  // namespace pushpull

#ifndef PUSHPULL_HAS_SANITIZER

namespace {

using PthreadCreate = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

constexpr int kTries = 3000;
constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 10'000'000};

}  // namespace

// The dynamic linker finds this definition before glibc's, for the calls of gRPC's libraries too.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) noexcept {
  static const PthreadCreate real =
      reinterpret_cast<PthreadCreate>(dlsym(RTLD_NEXT, "pthread_create"));
  int error = EAGAIN;
  for (int i = 0; i < kTries && error == EAGAIN; ++i) {
    if (i > 0) nanosleep(&kPause, nullptr);
    error = real(thread, attributes, start, argument);
  }
  if (error == EAGAIN) {
    LOG(FATAL) << "no thread could be started for half a minute: the process has too little "
                  "address space or too many threads (ulimit -v, ulimit -u, the cgroup's pids.max)";
  }
  return error;
}

#endif
