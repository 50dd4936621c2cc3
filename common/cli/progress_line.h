// The sign of life while training or waiting: one refreshed line on a terminal, a line every 30 s
// elsewhere.
#ifndef PUSHPULL_COMMON_CLI_PROGRESS_LINE_H_
#define PUSHPULL_COMMON_CLI_PROGRESS_LINE_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/clock.h"

namespace pushpull {

struct Progress {
  int64_t step = 0;
  int64_t num_steps = 0;  // 0: no end
  double loss = 0;
  std::optional<double> accuracy;  // classifiers
  double learning_rate = 0;
  double images_per_second = 0;                 // of all clones
  std::vector<double> clone_images_per_second;  // shown when there are several
  double staleness = 0;                         // mean, in versions
  std::optional<absl::Duration> time_left;
  std::string details;  // shown last; empty: none
};

// "step 1200/20000 6.0% loss 1.234 acc 0.981 lr 0.0040 182 img/s (62+60+60) staleness 0 eta 41m"
std::string FormatProgress(const Progress& progress);

// "41m", "1h05m", "35s", "2d03h"
std::string FormatTimeLeft(absl::Duration duration);

struct ProgressOptions {
  bool is_terminal = false;
  int columns = 0;  // of the terminal; 0: unknown, lines are not cut
  absl::Duration refresh_interval = absl::Milliseconds(200);  // terminal
  absl::Duration line_interval = absl::Seconds(30);           // elsewhere
  absl::Duration news_interval =
      absl::Seconds(3);  // elsewhere: between lines of waiting for others
};

// For a file descriptor: whether it is a terminal, and its width.
ProgressOptions ProgressOptionsFor(int file_descriptor);

// Not thread-safe. Keeps pointers to `out` and `clock`.
class ProgressLine {
 public:
  ProgressLine(std::ostream* out, const Clock* clock, const ProgressOptions& options);
  // Ends a refreshed line.
  ~ProgressLine();

  // Call as often as there is news, at least every second. The first call, and the first after
  // waiting, always shows.
  void Update(const Progress& progress);

  // Instead of Update while there is nothing to show: "clone 2 of 3 (never seen)" becomes "waiting
  // for clone 2 of 3 (never seen) 35 s", counted from the first call with the same text. A new text
  // shows at once, whatever was shown before, but no more often than every news_interval.
  void Wait(absl::string_view for_whom);

  // Shows the last progress if it has not been shown, and ends the line.
  void Finish();

 private:
  void Show(absl::string_view line);

  std::ostream* const out_;
  const Clock* const clock_;
  const ProgressOptions options_;
  absl::Duration last_shown_ = -absl::InfiniteDuration();
  absl::Duration last_wait_shown_ = -absl::InfiniteDuration();
  bool line_is_open_ = false;  // a refreshed line without its newline
  bool waiting_ = false;
  std::string waiting_for_;
  bool wait_shown_ = false;
  absl::Duration waiting_since_;
  std::optional<Progress> unshown_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLI_PROGRESS_LINE_H_
