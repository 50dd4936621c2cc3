#include "worker/cli/gpu_report.h"

#include <map>
#include <utility>

#include "gtest/gtest.h"

#include "tests/testkit/fake_clock.h"

namespace pushpull {
namespace {

class FakeMonitor final : public GpuMonitor {
 public:
  explicit FakeMonitor(std::map<std::string, GpuFigures>* gpus) : gpus_(*gpus) {}
  absl::StatusOr<GpuFigures> Read(absl::string_view gpu) override {
    const auto found = gpus_.find(std::string(gpu));
    if (found == gpus_.end()) return absl::UnavailableError("fell off");
    return found->second;
  }

 private:
  const std::map<std::string, GpuFigures>& gpus_;
};

TEST(GpuReportTest, ShowsEachGpuOnceAndReadsItOncePerSecond) {
  std::map<std::string, GpuFigures> gpus;
  gpus["GPU-a"].utilization_percent = 97;
  gpus["GPU-b"].utilization_percent = 3;
  const std::vector<std::string> uuids = {"GPU-b", "GPU-a", "GPU-b"};
  FakeClock clock;
  GpuReport report(std::make_unique<FakeMonitor>(&gpus), &clock);
  EXPECT_EQ(report.Text(uuids), "GPU 3 % | GPU 97 %");
  gpus["GPU-b"].utilization_percent = 50;
  EXPECT_EQ(report.Text(uuids), "GPU 3 % | GPU 97 %");
  clock.Advance(GpuReport::kPeriod);
  EXPECT_EQ(report.Text(uuids), "GPU 50 % | GPU 97 %");
}

TEST(GpuReportTest, ShowsAGpuAtOnceWhenItsCloneHasReportedIt) {
  std::map<std::string, GpuFigures> gpus;
  gpus["GPU-a"].utilization_percent = 97;
  gpus["GPU-b"].utilization_percent = 3;
  FakeClock clock;
  GpuReport report(std::make_unique<FakeMonitor>(&gpus), &clock);
  EXPECT_EQ(report.Text({"", ""}), "");
  EXPECT_EQ(report.Text({"", "GPU-b"}), "GPU 3 %");
  EXPECT_EQ(report.Text({"GPU-a", "GPU-b"}), "GPU 97 % | GPU 3 %");
}

TEST(GpuReportTest, NamesAGpuThatDoesNotAnswer) {
  std::map<std::string, GpuFigures> gpus;
  gpus["GPU-a"].temperature_celsius = 54;
  FakeClock clock;
  GpuReport report(std::make_unique<FakeMonitor>(&gpus), &clock);
  EXPECT_EQ(report.Text({"GPU-a", "GPU-b"}), "GPU 54 C | GPU-b does not answer");
}

TEST(GpuReportTest, ShowsNothingWithoutAMonitor) {
  FakeClock clock;
  EXPECT_EQ(GpuReport(nullptr, &clock).Text({"GPU-a"}), "");
}

}  // namespace
}  // namespace pushpull
