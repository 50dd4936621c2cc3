#include "worker/client/declare_variables.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/backoff.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/model/variable_entries.h"
#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"

namespace pushpull {
namespace {

// The limit of DeclareRequest.values.
constexpr int64_t kPartElements = (512 << 10) / sizeof(float);
// The first part also has the names, and gRPC limits the size of the whole message. At least this
// many elements are in it all the same.
constexpr int64_t kMinElements = 1024;
// How often parts are sent again because they arrived damaged, or because the server has lost them.
constexpr int kMaxRestarts = 10;
constexpr absl::Duration kGetJobTimeout = absl::Seconds(20);  // of one attempt

// The values of all variables as one sequence, without padding.
class ValueSequence {
 public:
  ValueSequence(const VariableLayout& layout, const float* const* values) : values_(values) {
    int64_t end = 0;
    for (int64_t i = 0; i < layout.num_variables(); ++i) {
      end += layout.num_elements(i);
      ends_.push_back(end);
    }
  }

  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }

  // Returns the bytes of elements [first, first + count).
  std::string Bytes(int64_t first, int64_t count) const {
    std::string bytes(count * sizeof(float), '\0');
    char* to = bytes.data();
    size_t i = std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin();
    while (count > 0) {
      const int64_t begin = i == 0 ? 0 : ends_[i - 1];
      const int64_t part = std::min(count, ends_[i] - first);
      std::memcpy(to, values_[i] + (first - begin), part * sizeof(float));
      to += part * sizeof(float);
      first += part;
      count -= part;
      ++i;
    }
    return bytes;
  }

 private:
  const float* const* const values_;
  std::vector<int64_t> ends_;  // by variable: the elements of it and of those before it
};

int64_t Megabytes(int64_t elements) {
  return elements * static_cast<int64_t>(sizeof(float)) / 1'000'000;
}

absl::Status CheckFinite(const VariableLayout& layout, const float* const* values) {
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    for (int64_t k = 0; k < layout.num_elements(i); ++k) {
      if (std::isfinite(values[i][k])) continue;
      return absl::InvalidArgumentError(absl::StrCat("the initial value of ",
                                                     layout.variables()[i].name, "[", k, "] is ",
                                                     values[i][k], ", expected a finite number"));
    }
  }
  return absl::OkStatus();
}

ps::DeclareRequest Part(const VariableLayout& layout, const ValueSequence& values, int64_t first) {
  ps::DeclareRequest request;
  int64_t most = kPartElements;
  if (first == 0) {
    for (ps::VariableEntry& entry : VariableEntries(layout)) {
      *request.add_variables() = std::move(entry);
    }
    const int64_t names = static_cast<int64_t>(request.ByteSizeLong() / sizeof(float));
    most = std::max(most - names, kMinElements);
  }
  request.set_first_element(first);
  request.set_values(values.Bytes(first, std::min(most, values.size() - first)));
  request.set_crc32c(Crc32c(request.values()));
  return request;
}

}  // namespace

absl::Status DeclareVariables(PsSession* session, const VariableLayout& layout,
                              const float* const* values, Clock* clock) {
  PP_RETURN_IF_ERROR(CheckFinite(layout, values));
  const ValueSequence sequence(layout, values);
  Backoff backoff({.initial = absl::Milliseconds(50), .maximum = absl::Seconds(1)}, 1);
  uint64_t first = 0;
  int restarts = 0;
  for (;;) {
    const absl::StatusOr<ps::DeclareReply> reply =
        session->Declare(Part(layout, sequence, static_cast<int64_t>(first)));
    if (reply.ok()) {
      if (reply->declared()) return absl::OkStatus();
      // A server that has restarted does not have the parts before this one.
      const bool has_lost_parts = reply->elements() <= first;
      first = reply->elements();
      if (first < static_cast<uint64_t>(sequence.size()) &&
          (!has_lost_parts || ++restarts <= kMaxRestarts)) {
        session->ReportWait(absl::StrFormat("the declaration of the variables: %d of %d MB",
                                            Megabytes(first), Megabytes(sequence.size())));
        continue;
      }
      return absl::InternalError(absl::StrCat("the server has ", first, " of ", sequence.size(),
                                              " initial values and takes no more of them"));
    }
    if (!IsTransient(reply.status())) {
      const bool is_damaged =
          GetErrorDetail(reply.status()).kind() == ps::ErrorDetail::BAD_CHECKSUM;
      if (!is_damaged || ++restarts > kMaxRestarts) return reply.status();
      continue;
    }
    // The server is away, or another clone declares.
    clock->Sleep(backoff.Next());
    PP_ASSIGN_OR_RETURN(const bool awaited, session->AwaitsVariables());
    if (!awaited) return absl::OkStatus();
  }
}

absl::StatusOr<VariableLayout> FetchVariables(PsSession* session) {
  ps::JobRequest request;
  request.set_protocol_version(kProtocolVersion);
  absl::StatusOr<ps::JobReply> job;
  PP_RETURN_IF_ERROR(session->Retry(0, [&]() -> absl::Status {
    job = session->shards()[0]->GetJob(request, kGetJobTimeout);
    if (!job.ok() || !job->awaits_variables()) return job.status();
    return absl::UnavailableError("the server still awaits the variables of the model");
  }));
  return LayoutOfEntries(job->variables());
}

}  // namespace pushpull
