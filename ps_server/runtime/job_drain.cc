// Tested by tests/ps_server/runtime/announce_end_test.cc.
// Tested by tests/ps_server/runtime/left_task_test.cc.
#include "ps_server/runtime/job_drain.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/wire/error_detail.h"

namespace pushpull {
namespace {

// The pause between two attempts, and the limit of all, which is over before Slurm and Kubernetes
// by default send SIGKILL (30 seconds).
constexpr absl::Duration kDrainPause = absl::Milliseconds(200);
constexpr absl::Duration kDrainLimit = absl::Seconds(28);
constexpr absl::string_view kWhatIsLeft =
    "; steps since the last checkpoint are in this task's mapped state only";

}  // namespace

std::string DrainThroughTask0(const std::function<absl::Status()>& ask,
                              const std::function<bool(absl::Duration)>& await_end, Clock* clock) {
  const absl::Duration start = clock->Now();
  absl::Duration last_answer = start;
  for (;;) {
    const absl::Status asked = ask();
    const absl::Duration now = clock->Now();
    const ps::ErrorDetail::Kind kind = GetErrorDetail(asked).kind();
    if (kind == ps::ErrorDetail::FENCED) return std::string(asked.message());
    if (kind == ps::ErrorDetail::WRONG_RUN) return absl::StrCat(asked.message(), kWhatIsLeft);
    if (asked.ok() || kind != ps::ErrorDetail::UNKNOWN) last_answer = now;
    if (now - last_answer >= kSilentCoordinator || now - start >= kDrainLimit) {
      return absl::StrCat("ps task 0 has not ended the job in ",
                          absl::FormatDuration(absl::Trunc(now - start, absl::Seconds(1))),
                          kWhatIsLeft);
    }
    if (await_end(kDrainPause)) return "";
  }
}

}  // namespace pushpull
