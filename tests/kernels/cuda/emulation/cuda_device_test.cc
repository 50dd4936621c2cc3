// The implementation of kernels/device.h on an emulated machine: its error messages, and that
// recorded work is what runs.
#include "kernels/cuda/cuda_device.h"

#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/cuda/emulation/runtime.h"

namespace pushpull::emulated_cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CudaDeviceTest : public testing::Test {
 protected:
  ~CudaDeviceTest() override { SetEmulatedMachine({}); }

  static std::unique_ptr<Device> Open(const GpuOptions& options = {}) {
    auto device = OpenDevice(options);
    EXPECT_TRUE(device.ok()) << device.status();
    return std::move(device).value();
  }
};

std::vector<float> Read(Device* device, const void* from, int64_t count) {
  auto pinned = device->AllocatePinned(count * sizeof(float)).value();
  const auto computed = device->MakeEvent(), copied = device->MakeEvent();
  device->RecordCompute(computed.get());
  device->CopyToHost(pinned->data(), from, count * sizeof(float), computed.get());
  device->RecordCopy(copied.get());
  EXPECT_TRUE(device->Wait(copied.get()).ok());
  const auto* const values = static_cast<const float*>(pinned->data());
  return {values, values + count};
}

// Machines whose streams run as late as they may, or in an order drawn by chance.
std::vector<EmulatedMachine> MachinesWithManyOrders() {
  std::vector<EmulatedMachine> machines = {{.defers = true}};
  for (uint32_t seed = 0; seed < 10; ++seed) machines.push_back({.seed = seed});
  return machines;
}

TEST_F(CudaDeviceTest, ReportsAMachineWithoutADevice) {
  SetEmulatedMachine({.device_count = 0});
  EXPECT_EQ(*CountDevices(), 0);
  const auto device = OpenDevice({});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(device.status().message(), HasSubstr("there is no GPU 0: this machine has none"));
}

TEST_F(CudaDeviceTest, AnUnknownIndexListsTheExistingOnes) {
  SetEmulatedMachine({.device_count = 2});
  EXPECT_EQ(*CountDevices(), 2);
  const auto device = OpenDevice({.gpu = "7"});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(device.status().message(),
              AllOf(HasSubstr("there is no GPU 7"), HasSubstr("1: emulated GPU (GPU-02000000-")));
}

TEST_F(CudaDeviceTest, AnOldDriverIsReportedWithBothVersions) {
  SetEmulatedMachine({.driver_version = 12040});
  for (const absl::Status& status : {CountDevices().status(), OpenDevice({}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("driver is too old"), HasSubstr("CUDA 12.4"),
                                        HasSubstr("needs 13.0"), HasSubstr("update the driver")));
  }
}

TEST_F(CudaDeviceTest, AMachineWhoseGpusAreNotReadyYetMayBeReadyLater) {
  SetEmulatedMachine({.start_error = cudaErrorSystemNotReady});
  for (const absl::Status& status : {CountDevices().status(), OpenDevice({}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("cudaErrorSystemNotReady"), HasSubstr("nvidia-fabricmanager")));
  }
  SetEmulatedMachine({.start_error = cudaErrorInvalidDevice});
  EXPECT_EQ(CountDevices().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CudaDeviceTest, AGpuWithoutCodeIsReportedWithWhatToBuild) {
  SetEmulatedMachine({.capability = 75});
  const auto device = OpenDevice({});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(device.status().message(),
              AllOf(HasSubstr("GPU 0 (emulated GPU"), HasSubstr("has compute capability 7.5"),
                    HasSubstr("this program has no code"),
                    HasSubstr("-DPUSHPULL_CUDA_ARCHITECTURES=75 or all")));
  SetEmulatedMachine({.capability = 80});
  const auto other = Open();
  const auto memory = other->Allocate(4).value();  // the error has been cleared
  other->float_operators()->Zero(1, static_cast<float*>(memory->data()));
  EXPECT_EQ(other->status(), absl::OkStatus());
}

TEST_F(CudaDeviceTest, AGpuThatDoesNotAnswerOnlyCostsThoseWhoWantIt) {
  SetEmulatedMachine({.device_count = 3, .silent_device = 1});
  for (const char* gpu : {"0", "2", "GPU-03"}) {
    const auto device = Open({.gpu = gpu});
    const auto memory = device->Allocate(4).value();  // the error has been cleared
    device->float_operators()->Zero(1, static_cast<float*>(memory->data()));
    EXPECT_EQ(device->status(), absl::OkStatus());
  }
  // GPU-02 is that of the one which does not tell it.
  for (const char* gpu : {"1", "GPU-02"}) {
    const auto device = OpenDevice({.gpu = gpu});
    EXPECT_EQ(device.status().code(), absl::StatusCode::kAborted);
    EXPECT_THAT(device.status().message(),
                HasSubstr("GPU 1 does not answer: cudaErrorECCUncorrectable"));
  }
  const auto device = OpenDevice({.gpu = "7"});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(
      device.status().message(),
      HasSubstr("there is no GPU 7: this machine has 0: emulated GPU (GPU-01000000-0000-0000-"
                "0000-000000000000), 1: no answer (UUID unknown)"));
}

TEST_F(CudaDeviceTest, CodeThatTheDriverCannotCompileIsReported) {
  for (const cudaError_t error :
       {cudaErrorInvalidDeviceFunction, cudaErrorInvalidPtx, cudaErrorJitCompilerNotFound,
        cudaErrorUnsupportedPtxVersion, cudaErrorJitCompilationDisabled}) {
    SetEmulatedMachine({.code_error = error});
    const auto device = OpenDevice({});
    EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(device.status().message(),
                AllOf(HasSubstr("no code that runs"), HasSubstr(cudaGetErrorName(error)),
                      HasSubstr("-DPUSHPULL_CUDA_ARCHITECTURES=90 or all")));
    SetEmulatedMachine({});
    const auto other = Open();
    const auto memory = other->Allocate(4).value();
    other->float_operators()->Zero(1, static_cast<float*>(memory->data()));
    EXPECT_EQ(other->status(), absl::OkStatus()) << "the error has not been cleared";
  }
}

TEST_F(CudaDeviceTest, OutOfMemoryReportsTheFreeMemory) {
  SetEmulatedMachine({.memory_bytes = size_t{1} << 20});
  const auto device = Open();
  auto small = device->Allocate(1 << 19);
  ASSERT_TRUE(small.ok());
  const auto large = device->Allocate(1 << 20);
  EXPECT_EQ(large.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(large.status().message(), HasSubstr("GPU 0 (emulated GPU"));
  EXPECT_TRUE(device->status().ok()) << "the device must stay usable";
  small->reset();
  EXPECT_TRUE(device->Allocate((1 << 19) + (1 << 18)).ok());
}

TEST_F(CudaDeviceTest, AMemoryLimitHoldsForTheProcess) {
  const auto device = Open({.memory_limit_bytes = 1000});
  EXPECT_EQ(device->free_bytes(), 1000);
  auto first = device->Allocate(600);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(device->free_bytes(), 400);
  const auto second = device->Allocate(600);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(second.status().message(), HasSubstr("this process's limit"));
  first->reset();
  EXPECT_TRUE(device->Allocate(1000).ok());
}

TEST_F(CudaDeviceTest, AnErrorAboutMemoryNamesSmallSizes) {
  SetEmulatedMachine({.memory_bytes = size_t{64} << 20});
  const auto device = Open({.memory_limit_bytes = 1000});
  EXPECT_THAT(device->Allocate((3 << 19)).status().message(),
              HasSubstr("has no memory for 1.50 MiB: 1000 bytes of this process's limit of 1000 "
                        "bytes are free"));
  EXPECT_THAT(
      Open()->Allocate(size_t{3} << 30).status().message(),
      AllOf(HasSubstr("has no memory for 3.00 GiB: "), HasSubstr(" of 64.00 MiB are free")));
}

// A sixteenth of the GPU's memory is for CUDA, whose share comes on top of a process's limit.
TEST_F(CudaDeviceTest, WithoutOtherProcessesAllMemoryButThatOfCudaIsFree) {
  constexpr int64_t kMemory = int64_t{64} << 20, kOfCuda = kMemory / 16;
  SetEmulatedMachine({.memory_bytes = kMemory});
  const auto other = Open();
  const auto held = other->Allocate(kMemory / 2).value();
  for (const int64_t limit : {int64_t{0}, kMemory, kMemory - kOfCuda, kMemory / 4}) {
    const auto device = Open({.memory_limit_bytes = limit});
    const int64_t all = limit == 0 ? kMemory - kOfCuda : std::min(limit, kMemory - kOfCuda);
    EXPECT_EQ(device->free_bytes_without_others(), all) << limit;
    const auto memory = device->Allocate(1000).value();
    EXPECT_EQ(device->free_bytes_without_others(), all - 1000) << limit;
  }
}

TEST_F(CudaDeviceTest, MemoryIsZeroed) {
  const auto device = Open();
  const auto memory = device->Allocate(400).value();
  EXPECT_EQ(Read(device.get(), memory->data(), 100), std::vector<float>(100, 0.0f));
}

TEST_F(CudaDeviceTest, AnUploadComesAfterTheZerosOfItsMemory) {
  for (const EmulatedMachine& machine : MachinesWithManyOrders()) {
    SetEmulatedMachine(machine);
    const auto device = Open();
    const auto pinned = device->AllocatePinned(400).value();
    const std::vector<float> sevens(100, 7.0f);
    std::memcpy(pinned->data(), sevens.data(), 400);
    const auto memory = device->Allocate(400).value();
    const auto uploaded = device->MakeEvent();
    device->Upload(memory->data(), pinned->data(), 400, /*after=*/nullptr);
    device->RecordUpload(uploaded.get());
    ASSERT_TRUE(device->Wait(uploaded.get()).ok());
    EXPECT_EQ(Read(device.get(), memory->data(), 100), sevens);
  }
}

TEST_F(CudaDeviceTest, AWriteHasReadItsMemoryWhenItReturns) {
  for (const EmulatedMachine& machine : MachinesWithManyOrders()) {
    SetEmulatedMachine(machine);
    const auto device = Open();
    const auto pinned = device->AllocatePinned(400).value();
    const auto memory = device->Allocate(400).value();
    const std::vector<float> sevens(100, 7.0f);
    std::memcpy(pinned->data(), sevens.data(), 400);
    device->Write(memory->data(), pinned->data(), 400);
    std::memset(pinned->data(), 0, 400);
    EXPECT_EQ(Read(device.get(), memory->data(), 100), sevens);
  }
}

// The three queues of the device use the same memory, and events order them.
TEST_F(CudaDeviceTest, EventsOrderUploadsOperatorsAndCopies) {
  const std::vector<float> sevens(100, 7.0f);
  for (const EmulatedMachine& machine : MachinesWithManyOrders()) {
    SetEmulatedMachine(machine);
    const auto device = Open();
    const auto pinned = device->AllocatePinned(400).value();
    const auto memory = device->Allocate(400).value();
    auto* const numbers = static_cast<float*>(memory->data());
    const auto uploaded = device->MakeEvent(), computed = device->MakeEvent();
    for (int i = 0; i < 3; ++i) {
      std::memcpy(pinned->data(), sevens.data(), 400);
      device->RecordCompute(computed.get());
      device->Upload(numbers, pinned->data(), 400, computed.get());
      device->RecordUpload(uploaded.get());
      device->ComputeAfter(uploaded.get());
      device->float_operators()->Zero(50, numbers);
      const std::vector<float> half = Read(device.get(), numbers, 100);
      EXPECT_EQ(std::vector<float>(half.begin(), half.begin() + 50), std::vector<float>(50, 0.0f));
      EXPECT_EQ(std::vector<float>(half.begin() + 50, half.end()), std::vector<float>(50, 7.0f));
      device->float_operators()->Zero(100, numbers);
    }
  }
}

// A thread begins with GPU 0 as its device, whatever the thread did that opened another one.
TEST_F(CudaDeviceTest, AnyThreadUsesTheDeviceThatWasOpened) {
  SetEmulatedMachine({.device_count = 2});
  const auto device = Open({.gpu = "1"});
  const size_t own = EmulatedAllocatedBytes(1);
  std::thread([&] {
    const auto memory = device->Allocate(400).value();
    EXPECT_EQ(EmulatedAllocatedBytes(0), 0u);
    EXPECT_EQ(EmulatedAllocatedBytes(1), own + 400u);
    auto* const numbers = static_cast<float*>(memory->data());
    const std::vector<float> sevens(100, 7.0f);
    device->Write(numbers, sevens.data(), 400);
    EXPECT_EQ(Read(device.get(), numbers, 100), sevens);
    const auto graph = device->Record([&] { device->float_operators()->Zero(50, numbers); });
    device->Launch(graph.get());
    device->float_operators()->Zero(50, numbers + 50);
    EXPECT_EQ(Read(device.get(), numbers, 100), std::vector<float>(100, 0.0f));
    EXPECT_EQ(device->status(), absl::OkStatus());
  }).join();
}

TEST_F(CudaDeviceTest, OneThreadUsesTwoDevicesInTurns) {
  SetEmulatedMachine({.device_count = 2});
  const auto first = Open({.gpu = "0"}), second = Open({.gpu = "1"});
  for (const auto& device : {first.get(), second.get(), first.get()}) {
    const int index = device == first.get() ? 0 : 1;
    const size_t own = EmulatedAllocatedBytes(index);
    const auto memory = device->Allocate(400).value();
    EXPECT_EQ(EmulatedAllocatedBytes(index), own + 400u);
    device->float_operators()->Zero(100, static_cast<float*>(memory->data()));
    EXPECT_EQ(Read(device, memory->data(), 100), std::vector<float>(100, 0.0f));
    EXPECT_EQ(device->status(), absl::OkStatus());
  }
}

TEST_F(CudaDeviceTest, ALostDeviceStaysLost) {
  const auto device = Open();
  const auto memory = device->Allocate(400).value();
  SetEmulatedMachine({.launches_until_failure = 0});
  const auto event = device->MakeEvent();
  device->float_operators()->Zero(100, static_cast<float*>(memory->data()));
  device->RecordCompute(event.get());
  const absl::Status status = device->Wait(event.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("GPU 0 (emulated GPU"), HasSubstr("cudaErrorLaunchFailure")));
  SetEmulatedMachine({});
  EXPECT_EQ(device->status(), status);
  EXPECT_EQ(device->Allocate(4).status(), status);
}

TEST_F(CudaDeviceTest, ARecordingRunsOncePerLaunch) {
  const auto device = Open();
  const auto memory = device->Allocate(400).value();
  auto* const numbers = static_cast<float*>(memory->data());
  const std::vector<float> sevens(100, 7.0f), zeros(100, 0.0f);
  device->Write(numbers, sevens.data(), 400);
  const auto graph = device->Record([&] { device->float_operators()->Zero(100, numbers); });
  EXPECT_EQ(Read(device.get(), numbers, 100), sevens);
  for (int i = 0; i < 2; ++i) {
    device->Write(numbers, sevens.data(), 400);
    device->Launch(graph.get());
    EXPECT_EQ(Read(device.get(), numbers, 100), zeros);
  }
}

TEST_F(CudaDeviceTest, CopiesFromPinnedMemoryArrive) {
  const auto device = Open();
  const auto memory = device->Allocate(400).value();
  const auto pinned = device->AllocatePinned(400).value();
  std::vector<float> numbers(100);
  for (int i = 0; i < 100; ++i) numbers[i] = static_cast<float>(i);
  std::memcpy(pinned->data(), numbers.data(), 400);
  device->CopyToDevice(memory->data(), pinned->data(), 400);
  EXPECT_EQ(Read(device.get(), memory->data(), 100), numbers);
}

}  // namespace
}  // namespace pushpull::emulated_cuda
