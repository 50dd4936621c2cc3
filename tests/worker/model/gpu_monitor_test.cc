#include "worker/model/gpu_monitor.h"

#include <dlfcn.h>

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

// tests/testkit/nvml/fake_nvml.cc describes what the fake GPUs answer.
std::unique_ptr<GpuMonitor> OpenFake() {
  absl::StatusOr<std::unique_ptr<GpuMonitor>> monitor = GpuMonitor::Open(PUSHPULL_FAKE_NVML);
  EXPECT_TRUE(monitor.ok()) << monitor.status();
  return monitor.ok() ? *std::move(monitor) : nullptr;
}

TEST(GpuMonitor, ReadsAllFigures) {
  const std::unique_ptr<GpuMonitor> monitor = OpenFake();
  ASSERT_NE(monitor, nullptr);
  const absl::StatusOr<GpuFigures> figures = monitor->Read("GPU-aa01");
  ASSERT_TRUE(figures.ok()) << figures.status();
  EXPECT_EQ(figures->utilization_percent, 90);
  EXPECT_EQ(figures->memory_used_bytes, int64_t{3} << 30);
  EXPECT_EQ(figures->memory_total_bytes, int64_t{8} << 30);
  EXPECT_EQ(figures->temperature_celsius, 54);
  EXPECT_EQ(FormatGpuFigures(*figures), "GPU 90 % 3.0/8.0 GiB 54 C");
}

TEST(GpuMonitor, OmitsFiguresThatAGpuDoesNotReport) {
  const std::unique_ptr<GpuMonitor> monitor = OpenFake();
  ASSERT_NE(monitor, nullptr);
  const absl::StatusOr<GpuFigures> figures = monitor->Read("GPU-bb02");
  ASSERT_TRUE(figures.ok()) << figures.status();
  EXPECT_FALSE(figures->utilization_percent.has_value());
  EXPECT_FALSE(figures->temperature_celsius.has_value());
  EXPECT_EQ(FormatGpuFigures(*figures), "GPU 3.0/8.0 GiB");
  EXPECT_EQ(FormatGpuFigures({}), "");
}

TEST(GpuMonitor, FindsGpusByUuid) {
  const std::unique_ptr<GpuMonitor> monitor = OpenFake();
  ASSERT_NE(monitor, nullptr);
  const absl::StatusOr<GpuFigures> whole = monitor->Read("GPU-aa04");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->utilization_percent, 93);
  // The search skips the lost GPU 2, which comes first.
  EXPECT_TRUE(monitor->Read("GPU-b").ok());
  const absl::Status several = monitor->Read("GPU-aa").status();
  EXPECT_EQ(several.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(several.message(), HasSubstr("2 GPUs are called \"GPU-aa\""));
  EXPECT_THAT(several.message(), HasSubstr("GPU-aa01, GPU-bb02, GPU-aa04, GPU-ee05"));
  EXPECT_EQ(monitor->Read("").status().code(), absl::StatusCode::kNotFound);
}

TEST(GpuMonitor, TakesNoIndices) {
  // NVML's GPU 0 need not be the GPU 0 of CUDA.
  const std::unique_ptr<GpuMonitor> monitor = OpenFake();
  ASSERT_NE(monitor, nullptr);
  const absl::Status index = monitor->Read("0").status();
  EXPECT_EQ(index.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(index.message(), HasSubstr("0 GPUs are called \"0\""));
}

TEST(GpuMonitor, ReportsWhyAReadFails) {
  const std::unique_ptr<GpuMonitor> monitor = OpenFake();
  ASSERT_NE(monitor, nullptr);
  const absl::Status lost = monitor->Read("GPU-ee05").status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(lost.message(), HasSubstr("GPU-ee05 does not report its state: GPU is lost"));
  // The lost GPU 2 does not even tell its UUID.
  const absl::Status absent = monitor->Read("GPU-cc03").status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(absent.message(), HasSubstr("expected one of GPU-aa01, "));
}

TEST(GpuMonitor, ReportsWhyTheLibraryCannotBeUsed) {
  EXPECT_EQ(GpuMonitor::Open("libno-such-library.so.1").status().code(),
            absl::StatusCode::kNotFound);
  const absl::Status other = GpuMonitor::Open("libm.so.6").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.message(), HasSubstr("libm.so.6 has no nvmlInit_v2"));
  ASSERT_EQ(setenv("FAKE_NVML_INIT", "9", 1), 0);
  const absl::Status stopped = GpuMonitor::Open(PUSHPULL_FAKE_NVML).status();
  ASSERT_EQ(unsetenv("FAKE_NVML_INIT"), 0);
  EXPECT_EQ(stopped.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(stopped.message(), HasSubstr("does not start: Driver Not Loaded"));
}

TEST(GpuMonitor, ShutsTheLibraryDown) {
  void* const handle = dlopen(PUSHPULL_FAKE_NVML, RTLD_NOW);
  ASSERT_NE(handle, nullptr) << dlerror();
  auto* const users = reinterpret_cast<int (*)()>(dlsym(handle, "FakeNvmlUsers"));
  ASSERT_NE(users, nullptr);
  std::unique_ptr<GpuMonitor> monitor = OpenFake();
  EXPECT_EQ(users(), 1);
  monitor.reset();
  EXPECT_EQ(users(), 0);
  dlclose(handle);
}

}  // namespace
}  // namespace pushpull
