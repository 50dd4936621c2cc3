#include "ps_server/runtime/request_limits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr size_t kMaxPhaseBytes = 32;
// Equals ServerLimits::longest_call, after which the RPC layer ends any call.
constexpr absl::Duration kLongestPull = absl::Minutes(15);

// Returns the position of the first control character, or npos if there is none. Control
// characters are C0, DEL and C1 (in UTF-8: 0xc2, then 0x80..0x9f).
size_t FindControl(absl::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) return i;
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) return i;
  }
  return absl::string_view::npos;
}

}  // namespace

absl::Status CheckText(absl::string_view field, absl::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " has ", text.size(), " bytes, allowed are ", max_bytes));
  }
  const size_t control = FindControl(text);
  if (control == absl::string_view::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has a control character at byte ", control));
}

absl::Duration LongestWait(const ps::PullRequest& request) {
  if (request.wait_milliseconds() == 0) return kLongestPull;
  return std::min(absl::Milliseconds(request.wait_milliseconds()), kLongestPull);
}

absl::Status CheckRequestLimits(const ps::RegisterRequest& request) {
  const ps::Arithmetic& arithmetic = request.arithmetic();
  PP_RETURN_IF_ERROR(CheckText("peer_name", request.peer_name(), kMaxNameBytes));
  PP_RETURN_IF_ERROR(CheckText("arithmetic.device", arithmetic.device(), kMaxNameBytes));
  return CheckText("arithmetic.rounding", arithmetic.rounding(), kMaxNameBytes);
}

absl::Status CheckRequestLimits(const ps::DeclareRequest& request) {
  return CheckText("peer_name", request.peer_name(), kMaxNameBytes);
}

absl::Status CheckRequestLimits(const ps::HeartbeatRequest& request) {
  PP_RETURN_IF_ERROR(CheckText("progress.phase", request.progress().phase(), kMaxPhaseBytes));
  return CheckText("progress.gpu.name", request.progress().gpu().name(), kMaxNameBytes);
}

absl::Status CheckRequestLimits(const ps::CommitRequest& request) {
  const ps::CommitInfo& info = request.info();
  PP_RETURN_IF_ERROR(
      CheckText("non_finite_variable", info.non_finite_variable(), kMaxVariableNameBytes));
  if (info.metrics_size() > kMaxMetrics) {
    return absl::InvalidArgumentError(absl::StrCat(
        info.metrics_size(), " metrics in one contribution, allowed are ", kMaxMetrics));
  }
  for (const ps::Metric& metric : info.metrics()) {
    PP_RETURN_IF_ERROR(CheckText("a metric's name", metric.name(), kMaxNameBytes));
  }
  return absl::OkStatus();
}

}  // namespace pushpull
