#include "common/base/num_cores.h"

#include <sched.h>

#include <thread>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(NumCoresTest, CountsTheCoresToWhichTheProcessIsBound) {
  EXPECT_GE(NumCores(), 1);
  EXPECT_LE(NumCores(), static_cast<int>(std::thread::hardware_concurrency()));
  // The thread binds only itself, so that the thread of the test keeps its cores.
  int bound = 0;
  std::thread thread([&bound] {
    cpu_set_t cores;
    ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
    int first = 0;
    while (!CPU_ISSET(first, &cores)) ++first;
    CPU_ZERO(&cores);
    CPU_SET(first, &cores);
    ASSERT_EQ(sched_setaffinity(0, sizeof(cores), &cores), 0);
    bound = NumCores();
  });
  thread.join();
  EXPECT_EQ(bound, 1);
}

}  // namespace
}  // namespace pushpull
