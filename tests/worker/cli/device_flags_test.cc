#include "worker/cli/device_flags.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/cli/exit_codes.h"

ABSL_DECLARE_FLAG(std::vector<std::string>, gpus);
ABSL_DECLARE_FLAG(std::string, device);
ABSL_DECLARE_FLAG(std::string, precision);
ABSL_DECLARE_FLAG(int64_t, gpu_memory_limit_mb);
ABSL_DECLARE_FLAG(std::string, cpu_isa);

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DeviceFlagsTest : public testing::Test {
 private:
  const absl::FlagSaver saver_;
};

TEST_F(DeviceFlagsTest, TheDefaultsAreThoseOfDeviceFlags) {
  const DeviceFlags flags = DeviceFromFlags(), defaults;
  EXPECT_EQ(flags.device, defaults.device);
  EXPECT_EQ(flags.gpus, defaults.gpus);
  EXPECT_EQ(flags.precision, defaults.precision);
  EXPECT_EQ(flags.gpu_memory_limit_mb, defaults.gpu_memory_limit_mb);
  EXPECT_EQ(flags.cpu_isa, defaults.cpu_isa);
  EXPECT_EQ(CheckFlagsOfOneDevice(), absl::OkStatus());
}

TEST_F(DeviceFlagsTest, ReadsAllFlags) {
  absl::SetFlag(&FLAGS_gpus, std::vector<std::string>{"GPU-5a"});
  absl::SetFlag(&FLAGS_device, "cuda");
  absl::SetFlag(&FLAGS_precision, "bf16");
  absl::SetFlag(&FLAGS_gpu_memory_limit_mb, 4096);
  absl::SetFlag(&FLAGS_cpu_isa, "sse4");
  const DeviceFlags flags = DeviceFromFlags();
  EXPECT_THAT(flags.gpus, ElementsAre("GPU-5a"));
  EXPECT_EQ(flags.device, "cuda");
  EXPECT_EQ(flags.precision, "bf16");
  EXPECT_EQ(flags.gpu_memory_limit_mb, 4096);
  EXPECT_EQ(flags.cpu_isa, "sse4");
  EXPECT_EQ(CheckFlagsOfOneDevice(), absl::OkStatus());
}

TEST_F(DeviceFlagsTest, AProgramOfOneProcessUsesOneGpu) {
  absl::SetFlag(&FLAGS_gpus, std::vector<std::string>{"0", "1"});
  const absl::Status status = CheckFlagsOfOneDevice();
  EXPECT_EQ(ExitCodeOf(status), kExitUsage);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--gpus names several GPUs"));
  absl::SetFlag(&FLAGS_gpus, std::vector<std::string>{"0"});
  absl::SetFlag(&FLAGS_precision, "fp16");
  EXPECT_EQ(ExitCodeOf(CheckFlagsOfOneDevice()), kExitUsage);
}

}  // namespace
}  // namespace pushpull
