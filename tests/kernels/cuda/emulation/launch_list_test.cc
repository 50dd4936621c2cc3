#include "kernels/cuda/emulation/launch_list.h"

#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "kernels/cuda/launch.cuh"
#include "tests/testkit/test_folder.h"

namespace pushpull::emulated_cuda {
namespace {

void CountKernel(int* calls) { ++*calls; }

class LaunchListTest : public testing::Test {
 protected:
  LaunchListTest() {
    cudaStreamCreateWithFlags(&queue_.stream, cudaStreamNonBlocking);
    EXPECT_TRUE(emulation::StartLaunchList(path_));
  }
  ~LaunchListTest() override {
    emulation::EndLaunchList();
    cudaStreamDestroy(queue_.stream);
  }

  void LaunchCount() { Launch(&queue_, "Count", {{3, 2}, 64, 512}, CountKernel, &calls_); }

  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  const TestFolder folder_;
  const std::string path_ = folder_.path() + "/launches";
  Queue queue_;
  int calls_ = 0;
};

TEST_F(LaunchListTest, HasTheLaunchesOfAGraphAndRunsNone) {
  LaunchCount();
  EXPECT_TRUE(Lines().empty()) << "outside of a graph";
  cudaStreamBeginCapture(queue_.stream, cudaStreamCaptureModeThreadLocal);
  LaunchCount();
  LaunchCount();
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(queue_.stream, &graph);
  cudaGraphLaunch(graph, queue_.stream);
  cudaGraphDestroy(graph);
  EXPECT_EQ(calls_, 0);
  const std::string line = "Count\t3\t2\t1\t64\t1\t1";
  EXPECT_EQ(Lines(), std::vector<std::string>({line, line}));
}

TEST_F(LaunchListTest, KernelsRunOnceItHasEnded) {
  emulation::EndLaunchList();
  LaunchCount();
  EXPECT_EQ(calls_, 3 * 2 * 64);
}

TEST(LaunchListFileTest, FileThatCannotBeWrittenIsAnError) {
  EXPECT_FALSE(emulation::StartLaunchList("/no/such/folder/launches"));
  EXPECT_FALSE(emulation::ListsLaunches());
}

}  // namespace
}  // namespace pushpull::emulated_cuda
