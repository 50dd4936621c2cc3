#include "common/cli/progress_line.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/fake_clock.h"

namespace pushpull {
namespace {

Progress At(int64_t step) {
  Progress progress;
  progress.step = step;
  progress.num_steps = 20000;
  progress.loss = 1.2344;
  progress.learning_rate = 0.004;
  progress.images_per_second = 182.4;
  progress.clone_images_per_second = {62.1, 60.2, 60.1};
  progress.time_left = absl::Minutes(41);
  return progress;
}

TEST(ProgressLineTest, HasTheDocumentedFormat) {
  EXPECT_EQ(FormatProgress(At(1200)),
            "step 1200/20000 6.0% loss 1.234 lr 0.0040 182 img/s (62+60+60) staleness 0 eta 41m");
  Progress progress = At(3);
  progress.accuracy = 0.9812;
  progress.num_steps = 0;
  progress.clone_images_per_second = {182.4};
  progress.learning_rate = 0.0000123;
  progress.staleness = 1.25;
  progress.time_left.reset();
  EXPECT_EQ(FormatProgress(progress),
            "step 3 loss 1.234 acc 0.981 lr 1.23e-05 182 img/s staleness 1.2");
  progress.details = "GPU 97 %";
  EXPECT_EQ(FormatProgress(progress),
            "step 3 loss 1.234 acc 0.981 lr 1.23e-05 182 img/s staleness 1.2 GPU 97 %");
}

TEST(ProgressLineTest, ShowsTheEpochWithOneDecimal) {
  Progress progress = At(1200);
  progress.epoch = 2.43;
  EXPECT_EQ(FormatProgress(progress),
            "step 1200/20000 6.0% epoch 2.4 loss 1.234 lr 0.0040 182 img/s (62+60+60) staleness 0 "
            "eta 41m");
}

TEST(ProgressLineTest, ARestEndsTheWait) {
  FakeClock clock;
  std::ostringstream log, terminal;
  ProgressOptions on_terminal;
  on_terminal.is_terminal = true;
  ProgressLine logged(&log, &clock, ProgressOptions());
  ProgressLine shown(&terminal, &clock, on_terminal);
  for (ProgressLine* line : {&logged, &shown}) line->Rest();
  EXPECT_EQ(log.str() + terminal.str(), "");
  for (const bool waits : {true, false, false, true, false}) {
    for (ProgressLine* line : {&logged, &shown}) waits ? line->Wait("ps task 0") : line->Rest();
    clock.Sleep(absl::Seconds(35));
  }
  EXPECT_EQ(log.str(),
            "waiting for ps task 0\nwaited for ps task 0 35 s\n"
            "waiting for ps task 0\nwaited for ps task 0 35 s\n");
  const std::string cleared = "\r\x1b[K";
  const std::string once = cleared + "waiting for ps task 0" + cleared;
  EXPECT_EQ(terminal.str(), once + once);
}

TEST(ProgressLineTest, EstimatesTheTimeLeft) {
  EXPECT_EQ(FormatTimeLeft(absl::Seconds(35)), "35s");
  EXPECT_EQ(FormatTimeLeft(absl::Seconds(119)), "119s");
  EXPECT_EQ(FormatTimeLeft(absl::Minutes(65)), "1h05m");
  EXPECT_EQ(FormatTimeLeft(absl::Hours(51)), "2d03h");
  EXPECT_EQ(FormatTimeLeft(-absl::Seconds(1)), "0s");
}

TEST(ProgressLineTest, PrintsALineEvery30SecondsWithoutATerminal) {
  FakeClock clock;
  std::ostringstream out;
  ProgressLine line(&out, &clock, {});
  line.Update(At(1));
  for (int i = 2; i <= 60; ++i) {
    clock.Sleep(absl::Seconds(1));
    line.Update(At(i));
  }
  EXPECT_EQ(out.str(), absl::StrCat(FormatProgress(At(1)), "\n", FormatProgress(At(31)), "\n"));
  line.Finish();
  EXPECT_EQ(out.str(), absl::StrCat(FormatProgress(At(1)), "\n", FormatProgress(At(31)), "\n",
                                    FormatProgress(At(60)), "\n"));
}

TEST(ProgressLineTest, SaysWhichCloneItWaitsForAndHowLong) {
  FakeClock clock;
  std::ostringstream out;
  ProgressLine line(&out, &clock, {});
  for (int i = 0; i <= 30; ++i) {
    line.Wait("clone 2 of 3 (never seen)");
    clock.Sleep(absl::Seconds(1));
  }
  clock.Sleep(absl::Seconds(3));
  line.Wait("clone 3 of 3 (never seen)");
  line.Update(At(1));
  EXPECT_EQ(out.str(), absl::StrCat("waiting for clone 2 of 3 (never seen)\n"
                                    "waiting for clone 2 of 3 (never seen) 30 s\n"
                                    "waiting for clone 3 of 3 (never seen)\n",
                                    FormatProgress(At(1)), "\n"));
}

TEST(ProgressLineTest, NamesNoTimeBeforeASecondHasPassed) {
  FakeClock clock;
  std::ostringstream out;
  {
    ProgressLine line(&out, &clock, {.is_terminal = true});
    for (int i = 0; i < 5; ++i) {
      line.Wait("ps task 0");
      clock.Sleep(absl::Milliseconds(300));
    }
  }
  const std::string early = "\r\x1b[Kwaiting for ps task 0";
  EXPECT_EQ(out.str(), absl::StrCat(early, early, early, early, early, " 1 s\n"));
}

TEST(ProgressLineTest, AProgressLineDoesNotDelayTheWaitingLine) {
  FakeClock clock;
  std::ostringstream out;
  ProgressLine line(&out, &clock, {});
  line.Update(At(1));
  clock.Sleep(absl::Seconds(29));
  line.Update(At(2));
  clock.Sleep(absl::Seconds(1));
  line.Update(At(3));
  clock.Sleep(absl::Milliseconds(100));
  line.Wait("clone 2 of 3 (compute)");
  EXPECT_EQ(out.str(), absl::StrCat(FormatProgress(At(1)), "\n", FormatProgress(At(3)), "\n",
                                    "waiting for clone 2 of 3 (compute)\n"));
}

TEST(ProgressLineTest, AlternatingClonesDoNotFillTheLog) {
  FakeClock clock;
  std::ostringstream out;
  ProgressLine line(&out, &clock, {});
  for (int i = 0; i < 300; ++i) {  // 30 s
    line.Wait(i % 2 == 0 ? "clone 1" : "clone 2");
    line.Update(At(i));
    clock.Sleep(absl::Milliseconds(100));
  }
  const std::string text = out.str();
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 22);
  EXPECT_NE(text.find("waiting for clone 1"), std::string::npos);
}

TEST(ProgressLineTest, RefreshesAndCutsTheLineOnATerminal) {
  FakeClock clock;
  std::ostringstream out;
  {
    ProgressLine line(&out, &clock, {.is_terminal = true, .columns = 11});
    line.Update(At(1));
    clock.Sleep(absl::Milliseconds(10));
    line.Update(At(2));  // too soon
    clock.Sleep(absl::Seconds(1));
    line.Update(At(30));
    EXPECT_EQ(out.str(), "\r\x1b[Kstep 1/200\r\x1b[Kstep 30/20");
  }
  EXPECT_EQ(out.str().back(), '\n') << "later output must begin on a new line";
}

}  // namespace
}  // namespace pushpull
