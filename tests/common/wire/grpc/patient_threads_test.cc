#include "common/wire/grpc/patient_threads.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

constexpr size_t kStackBytes = size_t{1} << 30;  // more than any stack that the C library caches
constexpr rlim_t kTooLittle = rlim_t{1} << 20;   // less than the process already uses

// Runs in the child: starts a thread with a large stack and waits for it. Returns the exit code.
int StartThread() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread;
  const auto nothing = [](void*) -> void* { return nullptr; };
  if (pthread_create(&thread, &attributes, nothing, nullptr) != 0) return 2;
  return pthread_join(thread, nullptr) == 0 ? 0 : 3;
}

// If gRPC could not start a thread, calls would never end.
TEST(PatientThreadsTest, StartsAThreadOnceThereIsMemoryAgain) {
  UsePatientThreads();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer replaces pthread_create";
#endif
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = kTooLittle;
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
    _exit(StartThread());
  }
  // The limit must not be raised before the child has lowered it.
  int status = 0;
  rlimit limit;
  do {
    absl::SleepFor(absl::Milliseconds(1));
    ASSERT_EQ(waitpid(child, &status, WNOHANG), 0) << "the child has ended: " << status;
    ASSERT_EQ(prlimit(child, RLIMIT_AS, nullptr, &limit), 0);
  } while (limit.rlim_cur != kTooLittle);
  // A child that does not wait for memory ends meanwhile.
  absl::SleepFor(absl::Milliseconds(100));
  ASSERT_EQ(waitpid(child, &status, WNOHANG), 0) << "the child did not wait for memory: " << status;
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(prlimit(child, RLIMIT_AS, &limit, nullptr), 0);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace pushpull
