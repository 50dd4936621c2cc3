#include "worker/train/report_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/fake_clock.h"
#include "worker/train/clone_report_codec.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

// This is as long as the name of a real GPU, so a string object keeps it in memory of its own.
constexpr char kGpu[] = "GPU-5a3c0d1e-0123-4567-89ab-cdef01234567";

class ReportSocketTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0); }
  void TearDown() override {
    for (const int end : ends_) {
      if (end >= 0) close(end);
    }
  }

  // The steps of the reports that have arrived since the last call. All must name the GPU.
  std::vector<int64_t> ReadSteps() {
    char buffer[4096];
    const ssize_t size = recv(ends_[1], buffer, sizeof(buffer), MSG_DONTWAIT);
    std::vector<int64_t> steps;
    for (const std::string& line : std::vector<std::string>(
             absl::StrSplit(std::string(buffer, size > 0 ? size : 0), '\n', absl::SkipEmpty()))) {
      const std::optional<CloneReport> report = DecodeCloneReport(line);
      if (!report.has_value()) {
        ADD_FAILURE() << "not a report: " << line;
        continue;
      }
      EXPECT_EQ(report->gpu, kGpu);
      EXPECT_EQ(report->waiting_for, report->step == kWaiting ? "clone 2 of 3" : "");
      steps.push_back(report->step);
    }
    return steps;
  }

  static constexpr int64_t kWaiting = 99;
  static CloneReport ReportOf(int64_t step) {
    CloneReport report;
    report.step = step;
    report.gpu = kGpu;
    if (step == kWaiting) report.waiting_for = "clone 2 of 3";
    return report;
  }

  int ends_[2] = {-1, -1};
  FakeClock clock_;
};

TEST_F(ReportSocketTest, SendsOneReportPerPeriod) {
  ReportSocket reports(ends_[0], &clock_);
  reports.Send(ReportOf(1));
  reports.Send(ReportOf(2));
  clock_.Advance(ReportSocket::kPeriod / 2);
  reports.Send(ReportOf(3));
  EXPECT_THAT(ReadSteps(), ElementsAre(1));
  clock_.Advance(ReportSocket::kPeriod / 2);
  reports.Send(ReportOf(4));
  EXPECT_THAT(ReadSteps(), ElementsAre(4));
}

TEST_F(ReportSocketTest, FlushSendsTheLastReportOnce) {
  ReportSocket reports(ends_[0], &clock_);
  reports.Flush();
  EXPECT_THAT(ReadSteps(), ElementsAre());
  reports.Send(ReportOf(1));
  reports.Send(ReportOf(2));
  reports.Send(ReportOf(3));
  EXPECT_THAT(ReadSteps(), ElementsAre(1));
  reports.Flush();
  reports.Flush();
  EXPECT_THAT(ReadSteps(), ElementsAre(3));
}

TEST_F(ReportSocketTest, FlushSendsNothingAfterAReportThatWasWritten) {
  ReportSocket reports(ends_[0], &clock_);
  reports.Send(ReportOf(1));
  reports.Send(ReportOf(2));
  clock_.Advance(ReportSocket::kPeriod);
  reports.Send(ReportOf(3));
  reports.Flush();
  EXPECT_THAT(ReadSteps(), ElementsAre(1, 3));
}

TEST_F(ReportSocketTest, SendsAtOnceWhatACloneWaitsFor) {
  ReportSocket reports(ends_[0], &clock_);
  reports.Send(ReportOf(1));
  reports.Send(ReportOf(kWaiting));
  EXPECT_THAT(ReadSteps(), ElementsAre(1, kWaiting));
}

TEST_F(ReportSocketTest, LosesReportsThatNobodyReads) {
  ReportSocket reports(ends_[0], &clock_);
  close(ends_[1]);
  ends_[1] = -1;
  reports.Send(ReportOf(1));
  reports.Send(ReportOf(2));
  reports.Flush();
}

}  // namespace
}  // namespace pushpull
