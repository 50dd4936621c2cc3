#include "worker/train/clone_report_codec.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace pushpull {
namespace {

constexpr size_t kMaxWords = 1024;  // bytes of waiting_for; PIPE_BUF is 4096
constexpr char kNoGpu[] = "-";      // a field cannot be empty

}  // namespace

std::string EncodeCloneReport(const CloneReport& report) {
  const std::string words =
      absl::StrReplaceAll(report.waiting_for.substr(0, kMaxWords), {{"\n", " "}});
  return absl::StrFormat("%d %d %.9g %.9g %.9g %.9g %d %d %s %s\n", report.step, report.num_steps,
                         report.loss, report.accuracy, report.learning_rate,
                         report.images_per_second, report.images, report.staleness,
                         report.gpu.empty() ? kNoGpu : report.gpu, words);
}

std::optional<CloneReport> DecodeCloneReport(absl::string_view line) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(' ', 9));
  CloneReport report;
  if (fields.size() != 10 || !absl::SimpleAtoi(fields[0], &report.step) ||
      !absl::SimpleAtoi(fields[1], &report.num_steps) ||
      !absl::SimpleAtod(fields[2], &report.loss) ||
      !absl::SimpleAtod(fields[3], &report.accuracy) ||
      !absl::SimpleAtod(fields[4], &report.learning_rate) ||
      !absl::SimpleAtod(fields[5], &report.images_per_second) ||
      !absl::SimpleAtoi(fields[6], &report.images) ||
      !absl::SimpleAtoi(fields[7], &report.staleness)) {
    return std::nullopt;
  }
  if (fields[8] != kNoGpu) report.gpu = std::string(fields[8]);
  report.waiting_for = std::string(fields[9]);
  return report;
}

}  // namespace pushpull
