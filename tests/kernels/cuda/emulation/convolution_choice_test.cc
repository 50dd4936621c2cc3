// How the way to compute a convolution is chosen, with the stand-ins of the libraries and with
// times that the test makes up.
#include "kernels/cuda/vendor/convolution_choice.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/cuda/convolution.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_operators.h"
#include "kernels/cuda/emulation/runtime.h"
#include "tests/kernels/cuda/device_fixture.h"
#include "tests/kernels/cuda/vendor/test_libraries.h"
#include "tests/testkit/kernels/convolution_case.h"
#include "tests/testkit/test_folder.h"

namespace pushpull::emulated_cuda {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

constexpr double kOwn = 10.0;  // milliseconds

class ConvolutionChoiceTest : public DeviceFixture<testing::Test> {
 protected:
  void SetUp() override {
    DeviceFixture::SetUp();
    Libraries(-1);
    UseFile("");
    context_.product_workspace = 1 << 16;
    context_.milliseconds = [this](Queue*, absl::FunctionRef<absl::Status()> work) {
      return Measure(work);
    };
    AddCase({.shape = {{2, 5, 4, 16}, 24, 1, 1, {}}}, &cases_);
  }
  void TearDown() override {
    unsetenv("FAKE_CUDNN");
    unsetenv("FAKE_CUBLASLT");
    SetEmulatedMachine({});
    DeviceFixture::TearDown();
  }

  void Libraries(int only) {
    context_.libraries.clear();
    context_.libraries.push_back(
        std::make_unique<CountingLibrary>(OpenTestCudnn().value(), only, &queued_));
  }
  void UseFile(const std::string& path, const std::string& conditions = "a GPU") {
    context_.file = std::make_unique<ChoiceFile>(&files_, path, conditions);
  }

  // Our kernels take kOwn, whose products are not counted, and each product of the library adds
  // product_time_.
  absl::StatusOr<double> Measure(absl::FunctionRef<absl::Status()> work) {
    const int before = queued_;
    const absl::Status status = work();
    if (!status.ok()) return status;
    ++measured_;
    const int products = queued_ - before;
    return products == 0 ? kOwn : kOwn + products * product_time_;
  }

  // Runs the case with new operators. Returns the products that the library computed after the
  // choices were made: in a second run, where nothing is tried.
  int ProductsUsed() {
    const auto operators = MakeCudaOperators<Bfloat16>(queue(), &context_);
    measured_ = 0;
    first_ = RunCase<Bfloat16>(cases_[0], operators.get(), memory());
    const int tried = measured_, before = queued_;
    second_ = RunCase<Bfloat16>(cases_[0], operators.get(), memory());
    EXPECT_EQ(measured_, tried) << "measured again";
    measured_ = tried;
    for (size_t i = 0; i < first_.size(); ++i) {
      EXPECT_EQ(first_[i].values, second_[i].values) << first_[i].name;
    }
    return queued_ - before;
  }

  PosixFileSystem files_;
  ChoiceContext context_;
  std::vector<ConvolutionCase> cases_;
  int queued_ = 0, measured_ = 0;
  double product_time_ = -1.0;
  std::vector<NamedTensor> first_, second_;
};

TEST_F(ConvolutionChoiceTest, UsesALibraryThatIsFaster) { EXPECT_EQ(ProductsUsed(), 3); }

TEST_F(ConvolutionChoiceTest, UsesOurKernelsIfTheLibraryIsSlowerOrHardlyFaster) {
  product_time_ = 1.0;
  EXPECT_EQ(ProductsUsed(), 0);
  UseFile("");
  product_time_ = -0.1;  // two products save 2 %
  EXPECT_EQ(ProductsUsed(), 0);
  EXPECT_GT(measured_, 0);
}

TEST_F(ConvolutionChoiceTest, UsesTheLibraryWhereverItCanIfOurKernelsDoNotCompete) {
  product_time_ = 1.0;
  context_.own_competes = false;
  EXPECT_EQ(ProductsUsed(), 2);  // both gradients by the library are slower than one of them
}

TEST_F(ConvolutionChoiceTest, DropsALibraryWhoseResultsDiffer) {
  setenv("FAKE_CUDNN", "wrong_result", 1);
  EXPECT_EQ(ProductsUsed(), 0);
}

TEST_F(ConvolutionChoiceTest, DropsALibraryThatFailsWhenItIsTried) {
  setenv("FAKE_CUDNN", "execute_fails", 1);
  EXPECT_EQ(ProductsUsed(), 0);
  EXPECT_EQ(queue()->error, cudaSuccess);
}

TEST_F(ConvolutionChoiceTest, GoesBackToOurKernelsIfALibraryFailsLater) {
  const auto operators = MakeCudaOperators<Bfloat16>(queue(), &context_);
  const auto before = RunCase<Bfloat16>(cases_[0], operators.get(), memory());
  setenv("FAKE_CUDNN", "execute_fails", 1);
  const auto after = RunCase<Bfloat16>(cases_[0], operators.get(), memory());
  const auto own = MakeCudaOperators<Bfloat16>(queue());
  const auto expected = RunCase<Bfloat16>(cases_[0], own.get(), memory());
  ASSERT_EQ(after.size(), expected.size());
  for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].values, expected[i].values);
  setenv("FAKE_CUDNN", "", 1);
  const int queued = queued_;
  RunCase<Bfloat16>(cases_[0], operators.get(), memory());
  EXPECT_EQ(queued_, queued) << "a library that has failed is asked again";
}

TEST_F(ConvolutionChoiceTest, TriesNothingWhileWorkIsRecorded) {
  const auto operators = MakeCudaOperators<Bfloat16>(queue(), &context_);
  queue()->recording = true;
  RunCase<Bfloat16>(cases_[0], operators.get(), memory());
  EXPECT_EQ(queued_ + measured_, 0);
  queue()->recording = false;
  RunCase<Bfloat16>(cases_[0], operators.get(), memory());
  EXPECT_GT(measured_, 0);
}

TEST_F(ConvolutionChoiceTest, AsksNoLibraryIfThatTakesTooMuchMemory) {
  context_.workspace_limit = 1000;
  EXPECT_EQ(ProductsUsed(), 0);
  EXPECT_EQ(measured_, 0);
}

TEST_F(ConvolutionChoiceTest, TheWorkspaceIsEnoughForOurKernelsToo) {
  ConvolutionChoice<Bfloat16> choice(queue(), &context_);
  context_.product_workspace = 0;
  for (const int multiprocessors : {2, 132}) {
    queue()->multiprocessors = multiprocessors;
    for (const int64_t side : {1, 7, 28, 112}) {
      for (const int64_t in : {8, 96, 960}) {
        for (const int64_t out : {4, 96, 1280}) {
          const ConvolutionShape shape = {{4, side, side, in}, out, 1, 1, {}};
          EXPECT_GE(choice.WorkspaceBytes(shape),
                    ConvolutionWorkspaceBytes<Bfloat16>(*queue(), shape))
              << side << " " << in << " " << out;
        }
      }
    }
  }
}

TEST_F(ConvolutionChoiceTest, KeepsChoicesInTheFile) {
  const TestFolder folder;
  const std::string path = folder.path() + "/new/gpu_choices";
  UseFile(path);
  EXPECT_EQ(ProductsUsed(), 3);
  EXPECT_GT(measured_, 0);
  const std::vector<NamedTensor> results = second_;
  // A later run measures nothing and computes the same bits, though the library has become slow.
  product_time_ = 100.0;
  UseFile(path);
  EXPECT_EQ(ProductsUsed(), 3);
  EXPECT_EQ(measured_, 0);
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].values, first_[i].values);
  // Another GPU or version has to be measured.
  UseFile(path, "another GPU");
  EXPECT_EQ(ProductsUsed(), 0);
  EXPECT_GT(measured_, 0);
  // A library that has lost its ways leaves our kernels.
  setenv("FAKE_CUDNN", "no_engines", 1);
  UseFile(path);
  EXPECT_EQ(ProductsUsed(), 0);
  EXPECT_EQ(measured_, 0);
}

TEST_F(ConvolutionChoiceTest, UsesOurKernelsIfThereIsNoMemoryToTry) {
  const auto operators = MakeCudaOperators<Bfloat16>(queue(), &context_);
  EmulatedMachine machine;
  // RunCase needs some memory for its operands; the trial needs as much again.
  machine.memory_bytes = EmulatedAllocatedBytes() + 260 * 1024;
  SetEmulatedMachine(machine);
  const auto results = RunCase<Bfloat16>(cases_[0], operators.get(), memory());
  EXPECT_EQ(queue()->error, cudaSuccess) << queue()->failed_call;
}

TEST_F(ConvolutionChoiceTest, TrialsTakeTheirMemoryFromTheDevice) {
  int64_t taken = 0;
  const TrialMemory whole = context_.allocate;
  context_.allocate = [&](int64_t bytes) {
    taken += bytes;
    return whole(bytes);
  };
  EXPECT_EQ(ProductsUsed(), 3);
  // Twice the bfloat16 result of the forward pass and the float gradient of the weights.
  EXPECT_GE(taken, 2 * (2 * 2 * 5 * 4 * 24 + 4 * 16 * 24));
  UseFile("");
  context_.allocate = [](int64_t) { return absl::ResourceExhaustedError("beyond the limit"); };
  EXPECT_EQ(ProductsUsed(), 0);
  EXPECT_EQ(measured_, 0);
}

TEST_F(ConvolutionChoiceTest, WithoutMemoryToTryItComputesAsAnotherCloneHasChosen) {
  const TestFolder folder;
  const std::string path = folder.path() + "/gpu_choices";
  UseFile(path);
  std::unique_ptr<ChoiceFile> opened_before = std::move(context_.file);
  UseFile(path);
  EXPECT_EQ(ProductsUsed(), 3);  // the other clone
  context_.file = std::move(opened_before);
  context_.allocate = [](int64_t) { return absl::ResourceExhaustedError("none"); };
  EXPECT_EQ(ProductsUsed(), 3);
  EXPECT_EQ(measured_, 0);
}

// The operands come from elsewhere, so that the limit of the device is for trials alone.
TEST(LimitedTrialsTest, TrialsKeepToTheMemoryLimitOfTheProcess) {
  const auto keeps_loaded = OpenTestCudnn().value();
  std::vector<ConvolutionCase> cases;
  AddCase({.shape = {{2, 5, 4, 16}, 24, 1, 1, {}}}, &cases);
  DefaultQueue queue;
  DeviceSource source(&queue);
  const OperandMemory memory = {
      &source, [&](void* to, const void* from, int64_t bytes) { source.Read(to, from, bytes); }};
  const TestFolder folder;
  GpuOptions options;
  options.library = GpuLibrary::kAuto;
  options.library_choices_file = folder.path() + "/gpu_choices";
  const auto kept = [&](int64_t limit) {
    std::filesystem::remove(options.library_choices_file);
    options.memory_limit_bytes = limit;
    const auto device = OpenDevice(options).value();
    RunCase<Bfloat16>(cases[0], device->bfloat16_operators(), memory);
    EXPECT_EQ(device->status(), absl::OkStatus());
    EXPECT_EQ(device->free_bytes(), limit) << "not all of the trial's memory was freed";
    return std::filesystem::exists(options.library_choices_file);
  };
  EXPECT_TRUE(kept(1 << 20));
  EXPECT_FALSE(kept(1 << 10));
}

TEST(MeasureByEventsTest, RunsTheWorkAndReturnsItsErrors) {
  Queue queue;
  ASSERT_EQ(cudaStreamCreateWithFlags(&queue.stream, cudaStreamNonBlocking), cudaSuccess);
  int runs = 0;
  const absl::StatusOr<double> time = MeasureByEvents(&queue, [&] {
    ++runs;
    return absl::OkStatus();
  });
  ASSERT_TRUE(time.ok());
  EXPECT_GE(*time, 0.0);
  EXPECT_GT(runs, 4);
  EXPECT_EQ(MeasureByEvents(&queue, [] { return absl::InternalError("no"); }).status().message(),
            "no");
  cudaStreamDestroy(queue.stream);
}

}  // namespace
}  // namespace pushpull::emulated_cuda
