#include "common/cli/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace pushpull {
namespace {

// Switches to scientific notation for small rates, which would all read 0.0000.
std::string FormatRate(double rate) {
  return rate == 0 || rate >= 0.001 ? absl::StrFormat("%.4f", rate) : absl::StrFormat("%.2e", rate);
}

// Returns for example "waiting for ps task 0 35 s". A time of less than a second is left out.
std::string FormatWait(absl::string_view verb, absl::string_view for_whom,
                       absl::Duration duration) {
  const int64_t seconds = absl::ToInt64Seconds(duration);
  return absl::StrCat(verb, " for ", for_whom, seconds > 0 ? absl::StrCat(" ", seconds, " s") : "");
}

}  // namespace

std::string FormatTimeLeft(absl::Duration duration) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(duration));
  const int64_t minutes = seconds / 60;
  const int64_t hours = minutes / 60;
  if (hours >= 24) return absl::StrFormat("%dd%02dh", hours / 24, hours % 24);
  if (hours > 0) return absl::StrFormat("%dh%02dm", hours, minutes % 60);
  if (minutes >= 2) return absl::StrCat(minutes, "m");
  return absl::StrCat(seconds, "s");
}

std::string FormatProgress(const Progress& progress) {
  std::string line = absl::StrCat("step ", progress.step);
  if (progress.num_steps > 0) {
    absl::StrAppendFormat(&line, "/%d %.1f%%", progress.num_steps,
                          100.0 * progress.step / progress.num_steps);
  }
  if (progress.epoch.has_value()) absl::StrAppendFormat(&line, " epoch %.1f", *progress.epoch);
  absl::StrAppendFormat(&line, " loss %.3f", progress.loss);
  if (progress.accuracy.has_value()) absl::StrAppendFormat(&line, " acc %.3f", *progress.accuracy);
  absl::StrAppendFormat(&line, " lr %s %.0f img/s", FormatRate(progress.learning_rate),
                        progress.images_per_second);
  if (progress.clone_images_per_second.size() > 1) {
    absl::StrAppend(&line, " (",
                    absl::StrJoin(progress.clone_images_per_second, "+",
                                  [](std::string* out, double rate) {
                                    absl::StrAppendFormat(out, "%.0f", rate);
                                  }),
                    ")");
  }
  const int staleness_digits = progress.staleness == std::floor(progress.staleness) ? 0 : 1;
  absl::StrAppendFormat(&line, " staleness %.*f", staleness_digits, progress.staleness);
  if (progress.time_left.has_value())
    absl::StrAppend(&line, " eta ", FormatTimeLeft(*progress.time_left));
  if (!progress.details.empty()) absl::StrAppend(&line, " ", progress.details);
  return line;
}

ProgressOptions ProgressOptionsFor(int file_descriptor) {
  ProgressOptions options;
  options.is_terminal = ::isatty(file_descriptor) == 1;
  struct winsize size = {};
  if (options.is_terminal && ::ioctl(file_descriptor, TIOCGWINSZ, &size) == 0)
    options.columns = size.ws_col;
  return options;
}

ProgressLine::ProgressLine(std::ostream* out, const Clock* clock, const ProgressOptions& options)
    : out_(out), clock_(clock), options_(options) {}

ProgressLine::~ProgressLine() {
  if (line_is_open_) *out_ << std::endl;
}

void ProgressLine::Show(absl::string_view line) {
  if (options_.is_terminal) {
    if (options_.columns > 1) line = line.substr(0, options_.columns - 1);
    *out_ << "\r\x1b[K" << line << std::flush;
    line_is_open_ = true;
  } else {
    *out_ << line << std::endl;
  }
  last_shown_ = clock_->Now();
}

void ProgressLine::Update(const Progress& progress) {
  const absl::Duration interval =
      options_.is_terminal ? options_.refresh_interval : options_.line_interval;
  const bool wait_is_over = waiting_ && wait_shown_;
  waiting_ = false;
  if (wait_is_over || clock_->Now() - last_shown_ >= interval) {
    unshown_.reset();
    Show(FormatProgress(progress));
  } else {
    unshown_ = progress;
  }
}

void ProgressLine::Wait(absl::string_view for_whom) {
  const absl::Duration now = clock_->Now();
  const bool news = !waiting_ || waiting_for_ != for_whom;
  if (news) {
    waiting_ = true;
    waiting_for_ = std::string(for_whom);
    waiting_since_ = now;
    wait_shown_ = false;
  }
  // Name a late clone at once, but do not let clones that take turns in being late fill a log.
  const bool is_due = options_.is_terminal ? now - last_shown_ >= options_.refresh_interval
                      : wait_shown_        ? now - last_shown_ >= options_.line_interval
                                           : now - last_wait_shown_ >= options_.news_interval;
  if (is_due) {
    wait_shown_ = true;
    last_wait_shown_ = now;
    Show(FormatWait("waiting", for_whom, now - waiting_since_));
  }
}

void ProgressLine::Rest() {
  if (waiting_ && wait_shown_) {
    const absl::Duration waited = clock_->Now() - waiting_since_;
    Show(options_.is_terminal ? "" : FormatWait("waited", waiting_for_, waited));
  }
  waiting_ = false;
}

void ProgressLine::Finish() {
  if (unshown_.has_value()) {
    const Progress last = *unshown_;
    unshown_.reset();
    Show(FormatProgress(last));
  }
  if (line_is_open_) *out_ << std::endl;
  line_is_open_ = false;
}

}  // namespace pushpull
