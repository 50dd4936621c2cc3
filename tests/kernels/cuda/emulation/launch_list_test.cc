#include "kernels/cuda/emulation/launch_list.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "kernels/cuda/launch.cuh"

namespace pushpull::emulated_cuda {
namespace {

struct Sizes {
  int64_t rows = 0;
  int32_t columns = 0;
};

void CountKernel(char, Sizes, int* calls) { ++*calls; }

class LaunchListTest : public testing::Test {
 protected:
  LaunchListTest() {
    cudaStreamCreateWithFlags(&queue_.stream, cudaStreamNonBlocking);
    EXPECT_TRUE(emulation::StartLaunchList(path_));
  }
  ~LaunchListTest() override {
    emulation::EndLaunchList();
    cudaStreamDestroy(queue_.stream);
    std::filesystem::remove(path_);
  }

  void LaunchCount() {
    Launch(&queue_, "Count", {{3, 2}, 64, 512}, CountKernel, char{1}, Sizes{5, 6}, &calls_);
  }

  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  const std::string path_ = testing::TempDir() + "launch_list_" + std::to_string(getpid());
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
  ASSERT_EQ(Lines().size(), 2u);
  EXPECT_EQ(Lines()[0], Lines()[1]);
  // One byte, the sizes at a multiple of 8 with their padding, and a pointer of 8 bytes.
  const std::string line = Lines()[0];
  EXPECT_NE(line.find(" 3 2 1 64 1 1 512 01"), std::string::npos) << line;
  EXPECT_NE(line.find("050000000000000006000000"), std::string::npos) << line;
  EXPECT_EQ(line.size() - line.find(" 512 ") - 5, 2u * (8 + sizeof(Sizes) + sizeof(int*)));
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
