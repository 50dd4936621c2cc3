// Prints the progress of training: on a terminal one line that is refreshed, elsewhere (a log file)
// one line every 30 s.
#ifndef PUSHPULL_COMMON_CLI_PROGRESS_LINE_H_
#define PUSHPULL_COMMON_CLI_PROGRESS_LINE_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/base/clock.h"

namespace pushpull {

struct Progress {
  int64_t step = 0;
  int64_t num_steps = 0;        // 0: training has no last step
  std::optional<double> epoch;  // passes over the training data so far, if that is known
  double loss = 0;
  std::optional<double> accuracy;  // classifiers only
  double learning_rate = 0;
  double images_per_second = 0;                 // of all clones together
  std::vector<double> clone_images_per_second;  // shown if there is more than one clone
  double staleness = 0;                         // mean, in versions
  std::optional<absl::Duration> time_left;
  std::string details;  // shown at the end of the line
};

// Returns for example
//   step 1200/20000 6.0% loss 1.234 acc 0.981 lr 0.0040 182 img/s (62+60+60) staleness 0 eta 41m
// with "epoch 2.4" before the loss if the epoch is known.
std::string FormatProgress(const Progress& progress);

// Returns for example "41m", "1h05m", "35s" or "2d03h".
std::string FormatTimeLeft(absl::Duration duration);

struct ProgressOptions {
  bool is_terminal = false;
  int columns = 0;  // width of the terminal; 0: unknown, lines are not cut
  absl::Duration refresh_interval = absl::Milliseconds(200);  // on a terminal
  absl::Duration line_interval = absl::Seconds(30);           // not on a terminal
  // Not on a terminal: the shortest time between two lines that name somebody new to wait for.
  absl::Duration news_interval = absl::Seconds(3);
};

// Returns the options for a file descriptor: whether it is a terminal, and the terminal's width.
ProgressOptions ProgressOptionsFor(int file_descriptor);

// Not thread-safe. `out` and `clock` must outlive it.
class ProgressLine {
 public:
  ProgressLine(std::ostream* out, const Clock* clock, const ProgressOptions& options);
  // Ends a refreshed line with a newline.
  ~ProgressLine();

  // Shows the progress if the interval of the options has passed. Call it for every new progress,
  // at least once a second. The first call always shows, and so does the first call after a wait
  // that was shown.
  void Update(const Progress& progress);

  // Call this instead of Update, at least once a second, while training waits.
  // Wait("clone 2 of 3 (never seen)") shows "waiting for clone 2 of 3 (never seen) 35 s", where the
  // time counts from the first call with the same text; one of less than a second is left out. Not
  // on a terminal, a new text is shown at once, but no more often than every news_interval, and
  // repeated every line_interval.
  void Wait(absl::string_view for_whom);

  // Call this instead of Wait, at least once a second, while nothing is waited for and there is no
  // progress to show. Ends a wait: a terminal's line becomes empty, and elsewhere a last line
  // "waited for ps task 0 35 s" follows the ones that Wait has shown.
  void Rest();

  // Shows the last progress if Update has not shown it, and ends the line.
  void Finish();

 private:
  void Show(absl::string_view line);

  std::ostream* const out_;
  const Clock* const clock_;
  const ProgressOptions options_;
  absl::Duration last_shown_ = -absl::InfiniteDuration();
  absl::Duration last_wait_shown_ = -absl::InfiniteDuration();
  bool line_is_open_ = false;  // a refreshed line is shown and has no newline yet
  bool waiting_ = false;
  std::string waiting_for_;
  bool wait_shown_ = false;
  absl::Duration waiting_since_;
  std::optional<Progress> unshown_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLI_PROGRESS_LINE_H_
