// Tested by tests/ps_server/core/membership_job_test.cc.
// Tested by tests/ps_server/core/membership_messages_test.cc.
// Tested by tests/ps_server/core/leaving_clone_test.cc.
#include "ps_server/core/membership.h"

#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/wire/batch_division.h"
#include "common/wire/protocol_version.h"
#include "ps_server/core/protocol_error.h"

namespace pushpull {
namespace {

// Every refusal of the evicted clone carries the reason, so it must stay short.
constexpr size_t kMaxReasonBytes = 500;

}  // namespace

Membership::Membership(const CoordinatorOptions& options, const JobState& job,
                       CoordinatorActions* actions)
    : options_(options), job_(job), actions_(actions), table_(options.lease, options.sync) {
  if (options.num_replicas > 0) SetNumReplicas(options.num_replicas);
  if (options.scaled) NoteScaled();
}

void Membership::SetNumReplicas(uint32_t num_replicas) {
  if (table_.num_replicas() > 0) return;
  table_.SetNumReplicas(num_replicas);
  if (options_.sync) shares_ = DivideEqually(options_.limits.batch_size, num_replicas);
}

absl::Status CheckNumReplicas(uint32_t trained, uint32_t num_replicas) {
  if (trained == 0 || num_replicas == 0 || trained == num_replicas) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "this run has trained with %d replicas, and in asynchronous mode their number is fixed for a "
      "run, but --num_replicas is %d: start the server with --num_replicas=%d, or begin a new "
      "train_dir",
      trained, num_replicas, trained));
}

absl::Status Membership::KeepNumReplicas(uint32_t num_replicas) {
  if (num_replicas == 0) return absl::OkStatus();
  SetNumReplicas(num_replicas);
  return CheckNumReplicas(num_replicas, table_.num_replicas());
}

void Membership::Divide(std::vector<int64_t> shares, uint64_t step) {
  shares_ = std::move(shares);
  table_.Divide(static_cast<uint32_t>(shares_.size()), step);
}

void Membership::NoteScaled() {
  scaled_ = true;
  table_.DoNotWaitForUnseen();
}

std::vector<ps::ReplicaGrant> Membership::GrantsOf(uint32_t worker) const {
  std::vector<ps::ReplicaGrant> grants = table_.GrantsOf(worker);
  for (ps::ReplicaGrant& grant : grants) {
    if (!options_.sync) break;
    const BatchPart part = PartOf(shares_, static_cast<int>(grant.replica()));
    grant.set_first_sample(part.first);
    grant.set_samples(part.samples);
  }
  return grants;
}

uint32_t Membership::WorkerOf(uint32_t replica) const {
  return table_.replica(replica).owner.value_or(replica);
}

bool Membership::IsReplicaOf(uint32_t replica, uint32_t worker) const {
  return replica == worker || table_.replica(replica).owner == worker;
}

std::string Membership::CloneName(uint32_t worker) const {
  const Clone* clone = table_.Find(worker);
  std::string name = absl::StrFormat("clone %d", worker);
  if (worker < num_replicas()) name += absl::StrFormat(" of %d", num_replicas());
  if (clone != nullptr && clone->seen) name += absl::StrFormat(" (%s)", clone->peer_name);
  return name;
}

absl::Status Membership::CheckNotEvicted(uint32_t worker) const {
  if (!table_.IsEvicted(worker)) return absl::OkStatus();
  const std::string& reason = *table_.Find(worker)->evicted;
  return ProtocolError(ps::ErrorDetail::EVICTED, job_.epoch, job_.version,
                       absl::StrFormat("%s was evicted by an administrator%s%s", CloneName(worker),
                                       reason.empty() ? "" : ": ", reason));
}

absl::Status Membership::CheckAnnouncement(const ps::RegisterRequest& request) {
  const std::string who =
      absl::StrFormat("clone %d (%s)", request.worker_id(), request.peer_name());
  PP_RETURN_IF_ERROR(CheckProtocolVersion(who, request.protocol_version(), "the server"));
  PP_RETURN_IF_ERROR(CheckFingerprint(request, who));
  if (request.layout_signature() != options_.layout_signature) {
    ps::ErrorDetail detail;
    detail.set_kind(ps::ErrorDetail::LAYOUT_MISMATCH);
    const std::string difference = DescribeVariableDifference(
        options_.variables, {request.variables().begin(), request.variables().end()},
        detail.mutable_variable());
    return MakeError(detail,
                     absl::StrFormat("%s has another model than the server: %s", who,
                                     difference.empty() ? "the signatures differ" : difference));
  }
  PP_RETURN_IF_ERROR(CheckDeclared(request, who));
  PP_RETURN_IF_ERROR(CheckImages(request, who));
  PP_RETURN_IF_ERROR(CheckReplicas(request, who));
  PP_RETURN_IF_ERROR(CheckProcess(request, who));
  PP_RETURN_IF_ERROR(CheckSameImages(request, who));
  if (!table_.HasRoomFor(request.worker_id())) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s has no replica, and %d spares are here already, which is the most: scale the job up "
        "(psctl scale), or start fewer workers",
        who, ReplicaTable::kMaxSpares));
  }
  SetNumReplicas(request.num_replicas());
  return absl::OkStatus();
}

absl::Status Membership::CheckFingerprint(const ps::RegisterRequest& request,
                                          const std::string& who) const {
  if (request.job_fingerprint().empty() || request.job_fingerprint() == options_.fingerprint) {
    return absl::OkStatus();
  }
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::JOB_CHANGED);
  detail.set_may_pass(true);
  return MarkPassing(MakeError(
      detail, absl::StrCat(who,
                           " began with other settings than this server has: the server was "
                           "started again with another pipeline config, mode (--sync) or "
                           "number of ps tasks. Start the clone's program again; it then "
                           "takes the present settings from the server")));
}

absl::Status Membership::CheckDeclared(const ps::RegisterRequest& request,
                                       const std::string& who) const {
  if (options_.declared.empty()) return CheckFrozen(request, who);
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::LAYOUT_MISMATCH);
  const std::string difference = DescribeDeclarationDifference(
      options_.declared, {request.variables().begin(), request.variables().end()},
      detail.mutable_variable());
  if (difference.empty()) return absl::OkStatus();
  return MakeError(
      detail, absl::StrFormat(
                  "%s declares a variable in another way than this run has it: %s. A run keeps "
                  "what its first clone has declared: go back to that, or begin a new train_dir "
                  "with the present weights as initial values. To freeze variables for a while, "
                  "leave their declaration and use train_config.freeze_variables",
                  who, difference));
}

absl::Status Membership::CheckFrozen(const ps::RegisterRequest& request,
                                     const std::string& who) const {
  for (int i = 0; i < request.variables_size() && i < std::ssize(options_.variables); ++i) {
    const ps::VariableEntry& known = options_.variables[i];
    if (!request.variables(i).frozen() || known.frozen() || known.moving_statistic()) continue;
    ps::ErrorDetail detail;
    detail.set_kind(ps::ErrorDetail::LAYOUT_MISMATCH);
    detail.set_variable(known.name());
    return MakeError(detail,
                     absl::StrFormat("%s has frozen %s, which this server trains: name it in "
                                     "train_config.freeze_variables, or let the clone train it",
                                     who, known.name()));
  }
  return absl::OkStatus();
}

absl::Status Membership::CheckReplicas(const ps::RegisterRequest& request,
                                       const std::string& who) const {
  if (request.num_replicas() == 0 || request.num_replicas() > kMaxReplicas) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s announces %d clones over all workers, expected 1 to %d", who,
                        request.num_replicas(), kMaxReplicas));
  }
  const uint64_t batch_size = options_.limits.batch_size;
  if (options_.sync && num_replicas() == 0 && request.num_replicas() > batch_size) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s announces %d clones over all workers, but a batch of %d samples has no "
                        "sample for each of them: raise train_config.batch_size",
                        who, request.num_replicas(), batch_size));
  }
  const uint32_t number = num_replicas() == 0 ? request.num_replicas() : num_replicas();
  const bool may_differ = options_.sync && (scaled_ || request.worker_id() >= number);
  if (request.num_replicas() != number && !may_differ) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s announces %d clones over all workers (num_clones x num_workers), but this job has %d; "
        "%s",
        who, request.num_replicas(), number,
        options_.sync ? "psctl scale changes their number"
                      : "in asynchronous mode their number is fixed for a run: start as many as "
                        "before, or begin a new train_dir"));
  }
  if (!options_.sync && request.worker_id() >= number) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: in asynchronous mode the worker ids of this job are 0 to %d: check "
                        "--worker_index and --num_clones (worker_id = worker_index x num_clones + "
                        "the number of the clone)",
                        who, number - 1));
  }
  return absl::OkStatus();
}

absl::Status Membership::CheckImages(const ps::RegisterRequest& request,
                                     const std::string& who) const {
  if (!job_.length.counts_images()) return absl::OkStatus();
  if (request.num_images() == 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s has 0 training images, but train_input_reader.num_epochs is set, so it needs at least "
        "one: check its data",
        who));
  }
  const uint64_t expected = job_.length.num_images();
  if (expected == 0 || request.num_images() == expected) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s has %d training images, but this run counts its epochs over %d: give all clones the same "
      "data, or limit training by train_config.num_steps instead of train_input_reader.num_epochs",
      who, request.num_images(), expected));
}

absl::Status Membership::CheckProcess(const ps::RegisterRequest& request,
                                      const std::string& who) const {
  const Clone* other = table_.Find(request.worker_id());
  if (other == nullptr) return absl::OkStatus();
  const bool same_clone = other->session == request.session();
  if (same_clone && request.process_number() < other->process_number) {
    // The error has no ErrorDetail, so the process ends instead of registering again.
    return absl::PermissionDeniedError(absl::StrFormat(
        "%s is process %d of this clone, but its supervisor has started process %d (%s) since", who,
        request.process_number(), other->process_number, other->peer_name));
  }
  if (other->alive && !same_clone) {
    // The text stays the same while the clone waits, so that its log names it once.
    return absl::AlreadyExistsError(absl::StrFormat(
        "%s: clone %d is %s, whose lease has not ended; give each worker its own index, or, if "
        "that process has ended, wait for the end of its lease of %s",
        who, request.worker_id(), other->peer_name, absl::FormatDuration(options_.lease)));
  }
  return absl::OkStatus();
}

absl::Status Membership::CheckSameImages(const ps::RegisterRequest& request,
                                         const std::string& who) const {
  if (request.num_images() == 0) return absl::OkStatus();
  for (const auto& [id, clone] : table_.clones()) {
    if (id == request.worker_id() || !clone.alive || clone.num_images == 0 ||
        clone.num_images == request.num_images()) {
      continue;
    }
    return absl::AlreadyExistsError(absl::StrFormat(
        "%s has %d training images, but %s, which is alive, has %d, so steps would miss samples or "
        "repeat them: give all clones the same data, or stop all of them before you change the "
        "data",
        who, request.num_images(), CloneName(id), clone.num_images));
  }
  return absl::OkStatus();
}

void Membership::ForgetOthersImages(uint32_t worker) {
  const uint64_t num_images = table_.Find(worker)->num_images;
  for (const auto& [id, clone] : table_.clones()) {
    if (clone.alive || clone.num_images == 0 || num_images == 0) continue;
    if (clone.num_images != num_images) table_.clone(id).registered = false;
  }
}

void Membership::Register(const ps::RegisterRequest& request, HasContribution committed) {
  const uint32_t worker = request.worker_id();
  const Clone* known = table_.Find(worker);
  const bool is_new = known == nullptr || !known->registered;
  if (is_new || known->process_number != request.process_number()) {
    actions_->push_back(coordinator_action::Notice{
        false,
        absl::StrFormat("clone %d (%s) is here%s%s", worker, request.peer_name(),
                        is_new ? "" : " again, in a new process",
                        worker < num_replicas()
                            ? ""
                            : absl::StrFormat(", a spare in a job of %d replicas", num_replicas())),
        worker >= num_replicas()});
  }
  table_.Register(worker, request.peer_name(), job_.version + 1, job_.now, committed);
  table_.clone(worker).session = request.session();
  table_.clone(worker).process_number = request.process_number();
  table_.clone(worker).num_images = request.num_images();
  table_.clone(worker).arithmetic = request.arithmetic();
  ForgetOthersImages(worker);
  WarnOfOtherRounding(worker);
}

void Membership::WarnOfOtherRounding(uint32_t worker) {
  const ps::Arithmetic& own = table_.Find(worker)->arithmetic;
  if (!options_.sync || warned_of_rounding_ || own.rounding().empty()) return;
  for (const auto& [id, clone] : table_.clones()) {
    const ps::Arithmetic& other = clone.arithmetic;
    if (!clone.alive || other.rounding().empty() || other.rounding() == own.rounding()) continue;
    warned_of_rounding_ = true;
    Warn(absl::StrFormat("%s computes on %s, but %s on %s. The last bits of their gradients "
                         "may differ, so the result depends on which clone computes which part",
                         CloneName(worker), own.device(), CloneName(id), other.device()),
         actions_);
    return;
  }
}

absl::Status Membership::NotRegistered(uint32_t worker) const {
  return ProtocolError(ps::ErrorDetail::EPOCH_CHANGED, job_.epoch, job_.version,
                       absl::StrFormat("clone %d is not registered", worker));
}

absl::Status Membership::Renew(uint32_t worker) {
  return table_.Renew(worker, job_.now) ? absl::OkStatus() : NotRegistered(worker);
}

absl::Status Membership::Leave(uint32_t worker) {
  if (!table_.Leave(worker)) return NotRegistered(worker);
  actions_->push_back(coordinator_action::Notice{
      false, absl::StrFormat("%s was stopped and has left", CloneName(worker)),
      worker >= num_replicas()});
  return absl::OkStatus();
}

absl::Status Membership::Heartbeat(const ps::HeartbeatRequest& request) {
  const uint32_t worker = request.worker_id();
  PP_RETURN_IF_ERROR(CheckNotEvicted(worker));
  const Clone* clone = table_.Find(worker);
  const bool somebody_else =
      clone != nullptr &&
      (clone->session != request.session() || clone->process_number != request.process_number());
  if (somebody_else) return NotRegistered(worker);
  if (request.leaving()) return Leave(worker);
  PP_RETURN_IF_ERROR(Renew(worker));
  table_.clone(worker).progress = request.progress();
  return absl::OkStatus();
}

absl::Status Membership::CheckEvict(const ps::EvictRequest& request) const {
  const uint32_t worker = request.worker_id();
  if (worker >= num_replicas() && table_.Find(worker) == nullptr) {
    return absl::NotFoundError(
        num_replicas() == 0
            ? absl::StrFormat("there is no clone %d: none has registered yet", worker)
            : absl::StrFormat("there is no clone %d: this job's are 0 to %d", worker,
                              num_replicas() - 1));
  }
  if (request.reason().size() > kMaxReasonBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the reason to evict clone %d has %d bytes, expected at most %d", worker,
                        request.reason().size(), kMaxReasonBytes));
  }
  return absl::OkStatus();
}

ps::EvictReply Membership::Evict(const ps::EvictRequest& request) {
  ps::EvictReply reply;
  const uint32_t worker = request.worker_id();
  if (table_.IsEvicted(worker)) return reply;
  std::string reason = request.reason();
  for (char& c : reason) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';  // logged on one line
  }
  const std::vector<uint32_t> taken = table_.Evict(worker, reason);
  reply.mutable_replicas()->Assign(taken.begin(), taken.end());
  std::string text(CheckNotEvicted(worker).message());
  if (!taken.empty()) absl::StrAppend(&text, "; it had replica ", absl::StrJoin(taken, ", "));
  if (!table_.AnyAlive()) absl::StrAppend(&text, "; no clone is left to go on");
  Warn(std::move(text), actions_);
  return reply;
}

void Membership::WarnOfLost(const std::vector<uint32_t>& workers) {
  for (const uint32_t worker : workers) {
    actions_->push_back(coordinator_action::Notice{
        true,
        absl::StrFormat("%s has not been heard from for %s: lost", CloneName(worker),
                        absl::FormatDuration(options_.lease)),
        worker >= num_replicas()});
  }
}

void Membership::Reassign(uint64_t step, HasContribution committed) {
  for (const uint32_t replica : table_.Reassign(step, job_.now, committed)) {
    Warn(absl::StrFormat("replica %d goes to %s from step %d on", replica,
                         CloneName(WorkerOf(replica)), step),
         actions_);
  }
}

void Membership::CountContribution(uint32_t worker) {
  if (table_.Find(worker) != nullptr) ++table_.clone(worker).contributions;
}

}  // namespace pushpull
