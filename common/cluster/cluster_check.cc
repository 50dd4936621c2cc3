// Tested by tests/ps_server/transport/cluster_check_test.cc.
#include "common/cluster/cluster_check.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/clock.h"
#include "common/base/monotonic_wait.h"
#include "common/cluster/address_probe.h"
#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"

namespace pushpull {
namespace {

// The round trip is the best of this many calls. The first call to a peer is not among them,
// because it also connects.
constexpr int kTimedCalls = 3;

absl::string_view StateName(PeerState state) {
  switch (state) {
    case PeerState::kOwn:
      return "this process";
    case PeerState::kReady:
      return "ready";
    case PeerState::kStarting:
      return "starting";
    case PeerState::kUnreachable:
      return "unreachable";
    case PeerState::kRefused:
      return "refused";
    case PeerState::kOtherJob:
      return "other job";
    case PeerState::kWrongTask:
      return "wrong task";
    case PeerState::kOtherVersion:
      return "other version";
  }
  return "?";
}

// The answers of one peer, or the reasons why there are none.
struct Answer {
  absl::Status allowed;  // what CheckExposure returns for the address
  absl::Status reached;
  absl::StatusOr<ps::ShardStateReply> shard = absl::UnknownError("not asked");
  absl::StatusOr<ps::JobReply> job = absl::UnknownError("not asked");  // asked of task 0 only
  absl::Duration round_trip;
};

void Ask(const std::string& address, bool is_coordinator, const ClusterCheckOptions& options,
         const PsClientFactory& connect, Answer* answer) {
  answer->allowed = CheckExposure(options.security, {address});
  if (!answer->allowed.ok()) return;
  const Deadline deadline(options.patience);
  answer->reached = ProbeAddress(address, options.patience);
  if (!answer->reached.ok()) return;
  const std::unique_ptr<PsClient> client = connect(address);
  // Even if the connection took almost all of the patience, leave some time for the calls.
  const auto left = [&] { return std::max(deadline.Left(), options.patience / 5); };
  answer->shard = client->GetShardState({}, left());
  if (!answer->shard.ok()) return;
  if (is_coordinator) {
    ps::JobRequest request;
    request.set_protocol_version(kProtocolVersion);
    answer->job = client->GetJob(request, left());
  }
  const SteadyClock clock;
  answer->round_trip = absl::InfiniteDuration();
  for (int i = 0; i < kTimedCalls; ++i) {
    const absl::Duration start = clock.Now();
    if (!client->GetShardState({}, left()).ok()) break;
    answer->round_trip = std::min(answer->round_trip, clock.Now() - start);
  }
  if (answer->round_trip == absl::InfiniteDuration()) answer->round_trip = absl::ZeroDuration();
}

std::string Hex(const std::string& run_id) { return absl::BytesToHexString(run_id.substr(0, 4)); }

// Sets state and reason of a peer that accepted the connection but did not answer the call.
void JudgeSilence(const absl::Status& status, const ClusterCheckOptions& options,
                  PeerReport* report) {
  const bool starting = GetErrorDetail(status).kind() == ps::ErrorDetail::NOT_READY;
  if (starting) {
    report->state = PeerState::kStarting;
    report->reason = std::string(status.message());
  } else if (absl::IsDeadlineExceeded(status)) {
    report->state = PeerState::kUnreachable;
    report->reason = absl::StrCat("takes the connection, but gives no answer in ",
                                  absl::FormatDuration(options.patience),
                                  ": stopped, overloaded, or no ps_server");
  } else if (absl::IsUnimplemented(status)) {
    report->state = PeerState::kRefused;
    report->reason = absl::StrCat("speaks gRPC, but is no ps_server: ", status.message());
  } else if (absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status)) {
    report->state = PeerState::kRefused;
    report->reason = std::string(status.message());
  } else {
    report->state = PeerState::kRefused;
    report->reason = absl::StrCat(
        "something listens there, but no call gets through (another service, one side has TLS and "
        "the other has not, a certificate is refused, or it is stopped or overloaded): ",
        status.message());
  }
}

// Reports on one task. `job` is the answer of task 0; null: it did not answer.
PeerReport Judge(int task, const std::string& address, const Answer& answer,
                 const ps::JobReply* job, const ClusterCheckOptions& options) {
  PeerReport report;
  report.task = task;
  report.address = address;
  report.round_trip = answer.round_trip;
  if (!answer.allowed.ok()) {
    report.state = PeerState::kRefused;
    report.reason = std::string(answer.allowed.message());
    return report;
  }
  if (!answer.reached.ok()) {
    report.reason = std::string(answer.reached.message());
    return report;
  }
  if (!answer.shard.ok()) {
    JudgeSilence(answer.shard.status(), options, &report);
    return report;
  }
  const ps::ShardStateReply& shard = *answer.shard;
  report.run_id = Hex(shard.job_run_id());
  report.protocol_version = shard.protocol_version();
  const absl::Status same = CheckProtocolVersion("it", shard.protocol_version());
  if (!same.ok()) {
    report.state = PeerState::kOtherVersion;
    report.reason = std::string(same.message());
  } else if (job != nullptr && shard.job_run_id() != job->run_id()) {
    report.state = PeerState::kOtherJob;
    report.reason =
        absl::StrCat("belongs to run ", report.run_id, ", task 0 to run ", Hex(job->run_id()));
  } else if (static_cast<int>(shard.shard()) != task) {
    report.state = PeerState::kWrongTask;
    report.reason = absl::StrCat("is task ", shard.shard(), " of the job, not task ", task,
                                 "; the addresses are in another order, or of another cluster");
  } else if (shard.epoch() == 0) {
    report.state = PeerState::kStarting;
    report.reason = "does not have its variables yet: it waits for the other ps tasks";
  } else {
    report.state = PeerState::kReady;
  }
  return report;
}

// Checks what only task 0 knows: the number of tasks, the model and the settings.
void JudgeJob(const Answer& answer, size_t tasks, const ClusterCheckOptions& options,
              PeerReport* report) {
  const bool answers = report->state == PeerState::kReady || report->state == PeerState::kStarting;
  if (!answers || !answer.shard.ok()) return;  // without an answer the job was not asked for
  if (!answer.job.ok()) return JudgeSilence(answer.job.status(), options, report);
  const ps::JobReply& job = *answer.job;
  if (tasks > 1 && job.tasks() != tasks) {
    report->state = PeerState::kOtherJob;
    report->reason =
        absl::StrCat("its job has ", job.tasks(), " ps tasks, this process knows ", tasks);
    return;
  }
  if (options.job_difference == nullptr) return;
  std::string difference = options.job_difference(job);
  if (difference.empty()) return;
  report->state = PeerState::kOtherJob;
  report->reason = std::move(difference);
}

// Asks all addresses at the same time. Returns the answers in the order of the addresses.
std::vector<Answer> AskAll(const std::vector<std::string>& addresses, int first_task,
                           const ClusterCheckOptions& options, const PsClientFactory& connect) {
  std::vector<Answer> answers(addresses.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const int task = first_task + static_cast<int>(i);
    if (task == options.own_task) continue;
    threads.emplace_back(
        [&, i, task] { Ask(addresses[i], task == 0, options, connect, &answers[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

void Append(const std::vector<std::string>& addresses, int first_task,
            const std::vector<Answer>& answers, const ps::JobReply* job,
            const ClusterCheckOptions& options, ClusterReport* report) {
  for (size_t i = 0; i < addresses.size(); ++i) {
    const int task = first_task + static_cast<int>(i);
    if (task == options.own_task) {
      report->peers.push_back({task, addresses[i], PeerState::kOwn, "", {}, "", kProtocolVersion});
    } else {
      report->peers.push_back(Judge(task, addresses[i], answers[i], job, options));
    }
  }
}

}  // namespace

ClusterReport CheckCluster(const ClusterCheckOptions& options, const PsClientFactory& connect) {
  ClusterReport report;
  const std::vector<Answer> answers = AskAll(options.ps, 0, options, connect);
  const bool told = !answers.empty() && answers[0].job.ok();
  const ps::JobReply* job = told ? &*answers[0].job : nullptr;
  Append(options.ps, 0, answers, job, options, &report);
  if (!answers.empty() && options.own_task != 0) {
    JudgeJob(answers[0], options.ps.size(), options, &report.peers[0]);
  }
  if (job != nullptr && options.ps.size() == 1 && job->addresses_size() > 1) {
    std::vector<std::string> others;
    for (int task = 1; task < job->addresses_size(); ++task) {
      others.push_back(AddressOfTask(job->addresses(task), options.ps[0]));
    }
    Append(others, 1, AskAll(others, 1, options, connect), job, options, &report);
  }
  return report;
}

std::string ClusterReport::Table() const {
  int width = 7;
  for (const PeerReport& peer : peers)
    width = std::max(width, static_cast<int>(peer.address.size()));
  std::string table = absl::StrFormat("%-4s  %-*s  %-13s  %10s  %-8s  %s\n", "task", width,
                                      "address", "state", "round trip", "run", "protocol");
  const auto or_dash = [](std::string text) { return text.empty() ? "-" : text; };
  for (const PeerReport& peer : peers) {
    const double milliseconds = absl::ToDoubleMilliseconds(peer.round_trip);
    absl::StrAppendFormat(&table, "%-4d  %-*s  %-13s  %10s  %-8s  %s\n", peer.task, width,
                          peer.address, StateName(peer.state),
                          milliseconds > 0 ? absl::StrFormat("%.2f ms", milliseconds) : "-",
                          or_dash(peer.run_id),
                          peer.protocol_version > 0 ? absl::StrCat(peer.protocol_version) : "-");
  }
  return table;
}

absl::Status ClusterReport::status() const {
  std::string reasons;
  int bad = 0;
  for (const PeerReport& peer : peers) {
    if (peer.state == PeerState::kOwn || peer.state == PeerState::kReady) continue;
    ++bad;
    absl::StrAppend(&reasons, "\n  ps task ", peer.task, " at ", peer.address, " (",
                    StateName(peer.state), "): ", peer.reason);
  }
  if (bad == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(bad, " of ", peers.size(), " ps tasks are not ready:", reasons));
}

}  // namespace pushpull
