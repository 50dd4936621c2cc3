#include "kernels/device_selection.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

std::vector<ListedDevice> TwoDevices() {
  return {{"NVIDIA H200", "GPU-5a3c0d1e-0000-0000-0000-000000000001"},
          {"NVIDIA H200", "GPU-5a3f0d1e-0000-0000-0000-000000000002"}};
}

TEST(DeviceSelectionTest, SelectsByIndexAndByUuid) {
  EXPECT_EQ(*SelectDevice(TwoDevices(), "0"), 0);
  EXPECT_EQ(*SelectDevice(TwoDevices(), "1"), 1);
  EXPECT_EQ(*SelectDevice(TwoDevices(), "GPU-5a3f0d1e-0000-0000-0000-000000000002"), 1);
  EXPECT_EQ(*SelectDevice(TwoDevices(), "gpu-5a3c"), 0);
}

// CUDA gives the UUID of a part of a GPU without the "MIG-" that nvidia-smi prints before it.
TEST(DeviceSelectionTest, SelectsAPartOfAGpuByItsUuid) {
  EXPECT_EQ(*SelectDevice(TwoDevices(), "MIG-5a3f0d1e-0000-0000-0000-000000000002"), 1);
  EXPECT_EQ(*SelectDevice(TwoDevices(), "mig-5a3c"), 0);
  EXPECT_FALSE(SelectDevice(TwoDevices(), "MIG-77").ok());
}

TEST(DeviceSelectionTest, AnUnknownNameListsTheExistingDevices) {
  for (const char* gpu : {"2", "-1", "GPU-77", "", "first"}) {
    const auto selected = SelectDevice(TwoDevices(), gpu);
    EXPECT_EQ(selected.status().code(), absl::StatusCode::kNotFound) << gpu;
    EXPECT_THAT(selected.status().message(), HasSubstr("0: NVIDIA H200 (GPU-5a3c0d1e-"));
    EXPECT_THAT(selected.status().message(), HasSubstr("1: NVIDIA H200"));
  }
  EXPECT_THAT(SelectDevice({}, "0").status().message(), HasSubstr("this machine has none"));
}

TEST(DeviceSelectionTest, RefusesAPrefixOfSeveralUuids) {
  EXPECT_THAT(SelectDevice(TwoDevices(), "GPU-5a3").status().message(), HasSubstr("several GPUs"));
}

TEST(DeviceSelectionTest, FormatsUuidsLikeTheDriver) {
  const unsigned char bytes[16] = {0x5a, 0x3c, 0x0d, 0x1e, 0x01, 0x23, 0x45, 0x67,
                                   0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67};
  EXPECT_EQ(FormatUuid(bytes), "GPU-5a3c0d1e-0123-4567-89ab-cdef01234567");
}

TEST(ParseGpuLibraryTest, KnowsThreeWords) {
  EXPECT_EQ(ParseGpuLibrary("own").value(), GpuLibrary::kOwn);
  EXPECT_EQ(ParseGpuLibrary("auto").value(), GpuLibrary::kAuto);
  EXPECT_EQ(ParseGpuLibrary("vendor").value(), GpuLibrary::kVendor);
  EXPECT_EQ(ParseGpuLibrary("cudnn").status().message(),
            "--gpu_library=cudnn, expected auto, own or vendor");
}

}  // namespace
}  // namespace pushpull
