#include "ps_server/core/declaration.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/model/variable_entries.h"
#include "common/wire/codecs/non_finite.h"
#include "common/wire/error_detail.h"

namespace pushpull {
namespace {

absl::Status Error(ps::ErrorDetail::Kind kind, absl::string_view message) {
  ps::ErrorDetail detail;
  detail.set_kind(kind);
  return MakeError(detail, message);
}

}  // namespace

Declaration::Declared::Declared(VariableLayout declared) : layout(std::move(declared)) {
  for (int64_t i = 0; i < layout.num_variables(); ++i) num_elements += layout.num_elements(i);
}

absl::Status Declaration::Declared::Append(const std::string& bytes) {
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(float));
  if (count > num_elements - elements) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d values from element %d on are too many: the variables have %d elements",
                        count, elements, num_elements));
  }
  const int64_t bad = FindNonFiniteElement<uint32_t>(bytes.data(), count);
  if (bad < count) {
    float value = 0.0f;
    std::memcpy(&value, bytes.data() + bad * sizeof(float), sizeof(float));
    return NonFiniteError(elements + bad, value);
  }
  for (int64_t done = 0; done < count;) {
    const auto size = static_cast<int64_t>(values.size());
    const int64_t end = layout.offset(variable) + layout.num_elements(variable);
    if (size >= end) {
      values.resize(layout.offset(++variable));
      continue;
    }
    const int64_t taken = std::min(count - done, end - size);
    values.resize(size + taken);
    std::memcpy(values.data() + size, bytes.data() + done * sizeof(float), taken * sizeof(float));
    done += taken;
  }
  elements += count;
  if (complete()) values.resize(layout.total_elements());
  return absl::OkStatus();
}

absl::Status Declaration::Declared::NonFiniteError(int64_t element, float value) const {
  int64_t index = 0;
  while (element >= layout.num_elements(index)) element -= layout.num_elements(index++);
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::NON_FINITE);
  detail.set_variable(layout.variables()[index].name);
  detail.set_index(element);
  return MakeError(detail, absl::StrFormat("the initial value of %s is %f at element %d",
                                           detail.variable(), value, element));
}

bool Declaration::HasTurn(const ps::DeclareRequest& part) const {
  return clone_.has_value() && clone_->worker_id == part.worker_id() &&
         clone_->session == part.session();
}

absl::Status Declaration::CheckPart(const ps::DeclareRequest& part) const {
  if (part.values().size() > kMaxPartBytes || part.values().size() % sizeof(float) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the part of a declaration has %d bytes of values, expected a multiple of "
                        "%d and at most %d",
                        part.values().size(), sizeof(float), kMaxPartBytes));
  }
  const uint32_t crc = Crc32c(part.values());
  if (crc == part.crc32c()) return absl::OkStatus();
  return Error(ps::ErrorDetail::BAD_CHECKSUM,
               absl::StrFormat("the values from element %d on arrived damaged: CRC32C is %08x, the "
                               "sender computed %08x",
                               part.first_element(), crc, part.crc32c()));
}

absl::StatusOr<ps::DeclareReply> Declaration::Take(const ps::DeclareRequest& part,
                                                   absl::Duration now) {
  if (part.run_id() != options_.run_id) {
    return Error(ps::ErrorDetail::WRONG_RUN, "this server belongs to another job (run_id differs)");
  }
  ps::DeclareReply reply;
  if (complete()) {
    reply.set_elements(declared_->elements);
    return reply;
  }
  const bool has_turn = HasTurn(part);
  if (has_turn) clone_->last_heard = now;
  if (clone_.has_value() && !has_turn && now - clone_->last_heard < options_.lease) {
    return Error(ps::ErrorDetail::NOT_READY,
                 absl::StrFormat("clone %d (%s) declares the variables of the external model",
                                 clone_->worker_id, clone_->peer_name));
  }
  PP_RETURN_IF_ERROR(CheckPart(part));
  if (part.variables_size() > 0) {
    PP_RETURN_IF_ERROR(Begin(part, now));
  } else if (!has_turn || part.peer_name() != clone_->peer_name) {
    // The sender has lost its turn, or is an earlier process of the clone: it has to begin anew.
    return reply;
  } else if (static_cast<int64_t>(part.first_element()) == declared_->elements) {
    PP_RETURN_IF_ERROR(declared_->Append(part.values()));
  }
  reply.set_elements(declared_->elements);
  return reply;
}

absl::Status Declaration::Begin(const ps::DeclareRequest& part, absl::Duration now) {
  if (part.first_element() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the part with the list of variables begins at element ", part.first_element(),
                     ", expected 0"));
  }
  PP_ASSIGN_OR_RETURN(VariableLayout layout, LayoutOfEntries(part.variables()));
  Declared begun(std::move(layout));
  if (begun.num_elements > options_.max_elements) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the variables have %d elements, and the memory of the server's machine holds %d",
        begun.num_elements, options_.max_elements));
  }
  PP_RETURN_IF_ERROR(options_.check_layout(begun.layout));
  // Takes addresses only; the system gives memory as the values come.
  begun.values.reserve(begun.layout.total_elements());
  PP_RETURN_IF_ERROR(begun.Append(part.values()));
  clone_ = Clone{part.worker_id(), part.session(), part.peer_name(), now};
  declared_ = std::move(begun);
  return absl::OkStatus();
}

std::string Declaration::WaitingFor() const {
  if (!declared_.has_value()) {
    return "a clone that declares the variables of the external model";
  }
  return absl::StrFormat("clone %d (%s), which has declared %d of the external model's %d elements",
                         clone_->worker_id, clone_->peer_name, declared_->elements,
                         declared_->num_elements);
}

}  // namespace pushpull
