#include "tests/testkit/declaration_parts.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

#include "common/base/crc32c.h"
#include "common/model/variable_entries.h"
#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"

namespace pushpull {

std::vector<float> ValuesFor(const VariableLayout& layout, uint64_t seed) {
  std::vector<float> values(layout.total_elements(), 0.0f);
  for (int64_t v = 0; v < layout.num_variables(); ++v) {
    for (int64_t i = 0; i < layout.num_elements(v); ++i) {
      values[layout.offset(v) + i] =
          static_cast<float>((v * 31 + i * 7 + static_cast<int64_t>(seed) * 13) % 101) / 64.0f -
          0.75f;
    }
  }
  return values;
}

std::vector<ps::DeclareRequest> DeclarationParts(const VariableLayout& layout,
                                                 const std::vector<float>& values,
                                                 const DeclaringClone& clone) {
  std::string bytes;
  for (int64_t v = 0; v < layout.num_variables(); ++v) {
    bytes.append(reinterpret_cast<const char*>(values.data() + layout.offset(v)),
                 layout.num_elements(v) * sizeof(float));
  }
  std::vector<ps::DeclareRequest> parts;
  const size_t part_bytes = clone.part_elements * sizeof(float);
  for (size_t begin = 0; begin < bytes.size(); begin += part_bytes) {
    ps::DeclareRequest& part = parts.emplace_back();
    part.set_run_id(clone.run_id);
    part.set_worker_id(clone.worker_id);
    part.set_session(clone.session);
    part.set_peer_name(clone.peer_name);
    if (begin == 0) {
      for (ps::VariableEntry& entry : VariableEntries(layout)) {
        *part.add_variables() = std::move(entry);
      }
    }
    part.set_first_element(begin / sizeof(float));
    part.set_values(bytes.substr(begin, part_bytes));
    part.set_crc32c(Crc32c(part.values()));
  }
  return parts;
}

absl::Status Declare(PsClient* client, const VariableLayout& layout,
                     const std::vector<float>& values, DeclaringClone clone) {
  constexpr absl::Duration kTimeout = absl::Seconds(10);
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  std::vector<ps::DeclareRequest> parts;
  if (!clone.run_id.empty()) parts = DeclarationParts(layout, values, clone);
  uint64_t elements = 0;
  while (absl::Now() < deadline) {
    if (parts.empty()) {
      ps::JobRequest request;
      request.set_protocol_version(kProtocolVersion);
      const auto job = client->GetJob(request, kTimeout);
      if (job.ok()) {
        clone.run_id = job->run_id();
        parts = DeclarationParts(layout, values, clone);
      } else if (!absl::IsUnavailable(job.status())) {
        return job.status();
      }
    }
    const auto next = std::find_if(parts.begin(), parts.end(), [elements](const auto& part) {
      return part.first_element() == elements;
    });
    absl::StatusOr<ps::DeclareReply> reply = absl::UnavailableError("no job");
    if (next != parts.end()) reply = client->DeclareVariables(*next, kTimeout);
    if (reply.ok()) {
      if (reply->declared()) return absl::OkStatus();
      elements = reply->elements();
    } else if (absl::IsUnavailable(reply.status()) &&
               GetErrorDetail(reply.status()).kind() != ps::ErrorDetail::DRAINING) {
      absl::SleepFor(absl::Milliseconds(5));
    } else {
      return reply.status();
    }
  }
  return absl::DeadlineExceededError("the variables were not declared in a minute");
}

}  // namespace pushpull
