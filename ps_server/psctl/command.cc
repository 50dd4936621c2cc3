#include "ps_server/psctl/command.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"

#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/cli/exit_codes.h"
#include "common/wire/error_detail.h"
#include "ps_server/psctl/reply_json.h"
#include "ps_server/psctl/status_text.h"

namespace pushpull {
namespace {

// gRPC's message of a call that got no answer in time.
constexpr absl::string_view kNoAnswer = "Deadline Exceeded";
constexpr absl::Duration kStatusPause = absl::Milliseconds(100);

struct CommandRow {
  PsctlCommand::Kind kind;
  absl::string_view words;      // one or two
  absl::string_view arguments;  // those after the words, for the help
  size_t max_arguments;
  absl::string_view help;
};

constexpr size_t kAnyNumber = std::numeric_limits<size_t>::max();
constexpr CommandRow kCommands[] = {
    {PsctlCommand::Kind::kStatus, "status", "", 0,
     "the job, its step, for whom it waits, and its clones"},
    {PsctlCommand::Kind::kCheckpoint, "checkpoint", "", 0,
     "publishes a checkpoint of what is applied now, and waits for it for at most --timeout"},
    {PsctlCommand::Kind::kDrain, "drain", "", 0,
     "ends the server as SIGTERM does: it publishes a checkpoint and exits with 143"},
    {PsctlCommand::Kind::kEvict, "evict", "K", 1,
     "takes clone K out of the job while this server runs: others get its replicas"},
    {PsctlCommand::Kind::kScale, "scale", "N", 1,
     "divides the batch of a synchronous job over N replicas from the next step on"},
    {PsctlCommand::Kind::kStateList, "state list", "", 0,
     "the mapped state on this machine, and which of it is still of use"},
    {PsctlCommand::Kind::kStateClean, "state clean", "[FILE...]", kAnyNumber,
     "removes mapped state that no ps_server will use, and the files named"},
};

// A command as it was typed: its row, and the words after those of its name.
struct ParsedWords {
  const CommandRow* row;
  std::vector<std::string> arguments;
};

absl::StatusOr<ParsedWords> ParseWords(const std::vector<std::string>& words) {
  for (const CommandRow& row : kCommands) {
    const std::vector<std::string> name = absl::StrSplit(row.words, ' ');
    if (words.size() < name.size() || !std::equal(name.begin(), name.end(), words.begin())) {
      continue;
    }
    return ParsedWords{&row, {words.begin() + name.size(), words.end()}};
  }
  const std::string expected =
      absl::StrCat("expected one of: ",
                   absl::StrJoin(kCommands, ", ", [](std::string* out, const CommandRow& row) {
                     absl::StrAppend(out, row.words);
                   }));
  if (words.empty()) return UsageError(absl::StrCat("no command, ", expected));
  return UsageError(
      absl::StrCat("unknown command \"", absl::StrJoin(words, " "), "\", ", expected));
}

bool ContactsServer(PsctlCommand::Kind kind) {
  return kind != PsctlCommand::Kind::kStateList && kind != PsctlCommand::Kind::kStateClean;
}

absl::Status ParseAddress(const PsctlFlags& flags, PsctlCommand* command) {
  if (flags.ps.empty()) return UsageError("--ps names no address");
  absl::Status form = CheckPsAddresses({{flags.ps[0]}, "flag --ps"});
  if (!form.ok()) return WithExitCode(std::move(form), kExitUsage);
  command->address = flags.ps[0];
  return absl::OkStatus();
}

absl::Status ParseEviction(const std::vector<std::string>& arguments, const PsctlFlags& flags,
                           PsctlCommand* command) {
  int id = flags.worker_id;
  if (!arguments.empty()) {
    if (!absl::SimpleAtoi(arguments[0], &id) || id < 0) {
      return UsageError(
          absl::StrCat("evict ", arguments[0], ": expected a worker id, 0 or greater"));
    }
    if (flags.worker_id != -1 && flags.worker_id != id) {
      return UsageError(absl::StrCat("evict ", id, " and --worker_id=", flags.worker_id,
                                     " disagree: name one clone"));
    }
  }
  if (id < 0) {
    return UsageError("evict needs the worker id of a clone: evict K or --worker_id=K");
  }
  if (!IsUtf8(flags.reason)) {
    return UsageError(
        absl::StrCat("--reason=", absl::CHexEscape(flags.reason), ", expected UTF-8"));
  }
  command->worker_id = id;
  command->reason = flags.reason;
  return absl::OkStatus();
}

absl::Status ParseScale(const std::vector<std::string>& arguments, const PsctlFlags& flags,
                        PsctlCommand* command) {
  if (arguments.empty() || !absl::SimpleAtoi(arguments[0], &command->num_replicas) ||
      command->num_replicas == 0) {
    return UsageError(absl::StrCat("scale", arguments.empty() ? "" : " ",
                                   arguments.empty() ? "" : arguments[0],
                                   ": expected a number of replicas, 1 or more: scale N"));
  }
  command->wait = flags.wait;
  return absl::OkStatus();
}

template <typename Reply, typename Format>
absl::StatusOr<std::string> Show(const absl::StatusOr<Reply>& reply, PsctlCommand::Output output,
                                 const Format& format) {
  if (!reply.ok()) return reply.status();
  if (output == PsctlCommand::Output::kJson) return ReplyToJson(*reply);
  return format(*reply);
}

std::string FormatScale(const ps::ScaleReply& reply, uint32_t num_replicas) {
  std::string text =
      absl::StrFormat("%d replicas from step %d on", num_replicas, reply.from_step());
  if (reply.previous_num_replicas() > 0) {
    absl::StrAppendFormat(&text, ", %d until then", reply.previous_num_replicas());
  }
  absl::StrAppendFormat(&text, "; %d clones are there", reply.live_clones());
  if (reply.live_clones() == 0) {
    text += ": training goes on once a worker is there";
  } else if (reply.live_clones() < num_replicas) {
    text += ": they compute several replicas each, at first perhaps after a lease, until more come";
  } else if (reply.live_clones() > num_replicas) {
    text += ": those without a replica are spares";
  }
  return text + "\n";
}

// Returns an error unless `status`, of a job that has applied `step` or ended before it, says that
// the step had the number of replicas that was asked for.
absl::Status CheckScaled(uint64_t step, uint32_t num_replicas, const ps::StatusReply& status) {
  if (status.version() < step) {
    return absl::FailedPreconditionError(
        absl::StrFormat("training ended with step %d, before step %d, the first one with %d "
                        "replicas",
                        status.version(), step, num_replicas));
  }
  if (status.num_replicas() != num_replicas) {
    return absl::AbortedError(
        absl::StrFormat("the job has %d replicas instead of %d: somebody else has scaled it "
                        "meanwhile",
                        status.num_replicas(), num_replicas));
  }
  return absl::OkStatus();
}

// Asks for the status until the step is applied or training has ended, until `deadline` (a time of
// the clock) at most. Asks at least once, so that the error can say for whom the job waits.
//   DEADLINE_EXCEEDED: the step is not applied
//   FAILED_PRECONDITION: training ended before the step
//   ABORTED: another call has set another number of replicas
//   INTERNAL: a failure has stopped training
absl::Status WaitForStep(uint64_t step, const PsctlCommand& command, absl::Duration deadline,
                         PsClient* client, Clock* clock) {
  std::string waiting_for;  // as the last answer says
  for (;;) {
    const absl::Duration left = std::max(deadline - clock->Now(), absl::ZeroDuration());
    const absl::StatusOr<ps::StatusReply> status = client->GetStatus({}, left);
    if (status.ok()) {
      if (status->version() >= step || status->training_done()) {
        return CheckScaled(step, command.num_replicas, *status);
      }
      if (!status->stopped().empty()) {
        return absl::InternalError(absl::StrCat("training was stopped: ", status->stopped()));
      }
      waiting_for = status->waiting_for();
    }
    // In less time than a pause a call would hardly be answered.
    if (deadline - clock->Now() <= kStatusPause) {
      return absl::DeadlineExceededError(
          absl::StrCat("the job is scaled, but step ", step, " is not applied after ",
                       absl::FormatDuration(command.timeout),
                       status.ok() ? "" : absl::StrCat(": ", status.status().message()),
                       waiting_for.empty() ? "" : absl::StrCat("; it waits for ", waiting_for)));
    }
    clock->Sleep(kStatusPause);
  }
}

absl::StatusOr<std::string> RunScale(const PsctlCommand& command, PsClient* client, Clock* clock) {
  const absl::Duration deadline = clock->Now() + command.timeout;
  ps::ScaleRequest request;
  request.set_num_replicas(command.num_replicas);
  const absl::StatusOr<ps::ScaleReply> reply = client->Scale(request, command.timeout);
  if (reply.ok() && command.wait) {
    PP_RETURN_IF_ERROR(WaitForStep(reply->from_step(), command, deadline, client, clock));
  }
  return Show(reply, command.output, [&](const ps::ScaleReply& scaled) {
    return FormatScale(scaled, command.num_replicas);
  });
}

absl::StatusOr<std::string> RunEvict(const PsctlCommand& command, PsClient* client) {
  ps::EvictRequest request;
  request.set_worker_id(command.worker_id);
  request.set_reason(command.reason);
  return Show(client->Evict(request, command.timeout), command.output,
              [&](const ps::EvictReply& reply) {
                return absl::StrFormat(
                    "evicted clone %d; it had %s\n", command.worker_id,
                    reply.replicas().empty()
                        ? "no replica"
                        : absl::StrCat("replica ", absl::StrJoin(reply.replicas(), ", ")));
              });
}

}  // namespace

std::string PsctlUsage() {
  std::string text = "psctl [flags] COMMAND";
  for (const CommandRow& row : kCommands) {
    const std::string typed =
        absl::StrCat(row.words, row.arguments.empty() ? "" : " ", row.arguments);
    absl::StrAppendFormat(&text, "\n  %-22s  %s", typed, row.help);
  }
  return text;
}

absl::StatusOr<PsctlCommand> ParsePsctlCommand(const std::vector<std::string>& words,
                                               const PsctlFlags& flags) {
  PP_ASSIGN_OR_RETURN(const ParsedWords parsed, ParseWords(words));
  const CommandRow& row = *parsed.row;
  const std::vector<std::string>& arguments = parsed.arguments;
  if (arguments.size() > row.max_arguments) {
    return UsageError(absl::StrCat("unexpected argument \"", arguments[row.max_arguments],
                                   "\" after ",
                                   words[words.size() - arguments.size() + row.max_arguments - 1]));
  }
  PsctlCommand command;
  command.kind = row.kind;
  if (ContactsServer(row.kind)) {
    PP_RETURN_IF_ERROR(ParseAddress(flags, &command));
    if (!flags.state_dir.empty()) {
      return UsageError(absl::StrCat("--state_dir belongs to state, not to ", row.words));
    }
  }
  command.state_dir = flags.state_dir;
  if (row.kind == PsctlCommand::Kind::kStateClean) command.state_files = arguments;
  if (row.kind == PsctlCommand::Kind::kEvict) {
    PP_RETURN_IF_ERROR(ParseEviction(arguments, flags, &command));
  } else if (flags.worker_id != -1 || !flags.reason.empty()) {
    return UsageError(absl::StrCat("--worker_id and --reason belong to evict, not to ", row.words));
  }
  if (row.kind == PsctlCommand::Kind::kScale) {
    PP_RETURN_IF_ERROR(ParseScale(arguments, flags, &command));
  } else if (flags.wait) {
    return UsageError(absl::StrCat("--wait belongs to scale, not to ", row.words));
  }
  if (flags.output != "text" && flags.output != "json") {
    return UsageError(absl::StrCat("--output=", flags.output, ", expected text or json"));
  }
  if (flags.output == "json") command.output = PsctlCommand::Output::kJson;
  if (flags.timeout <= absl::ZeroDuration()) {
    return UsageError(
        absl::StrCat("--timeout=", absl::FormatDuration(flags.timeout), ", expected more than 0"));
  }
  command.timeout = flags.timeout;
  return command;
}

namespace {

absl::StatusOr<std::string> Run(const PsctlCommand& command, PsClient* client, Clock* clock) {
  switch (command.kind) {
    case PsctlCommand::Kind::kStatus:
      return Show(client->GetStatus({}, command.timeout), command.output,
                  [client](const ps::StatusReply& status) {
                    return FormatStatus(status, client->address());
                  });
    case PsctlCommand::Kind::kCheckpoint:
      return Show(client->Checkpoint({}, command.timeout), command.output,
                  [](const ps::CheckpointReply& reply) {
                    return absl::StrFormat("published the checkpoint of step %d\n", reply.step());
                  });
    case PsctlCommand::Kind::kDrain:
      return Show(client->Drain({}, command.timeout), command.output,
                  [](const ps::DrainReply& reply) {
                    return absl::StrFormat(
                        "the server ends: step %d is applied. It finishes a synchronous step that "
                        "has commits if that takes no more than 5 s, and gives up any other. Then "
                        "it publishes a checkpoint, unless it has not served yet, and exits with "
                        "143\n",
                        reply.version());
                  });
    case PsctlCommand::Kind::kScale:
      return RunScale(command, client, clock);
    case PsctlCommand::Kind::kEvict:
      return RunEvict(command, client);
    case PsctlCommand::Kind::kStateList:
    case PsctlCommand::Kind::kStateClean:
      break;
  }
  LOG(FATAL) << "psctl state commands do not contact a server";
}

}  // namespace

absl::StatusOr<std::string> RunPsctlCommand(const PsctlCommand& command, PsClient* client,
                                            Clock* clock) {
  absl::StatusOr<std::string> text = Run(command, client, clock);
  const absl::Status& status = text.status();
  const bool answered = GetErrorDetail(status).kind() != ps::ErrorDetail::UNKNOWN;
  std::string advice;
  if (!answered && absl::IsUnavailable(status)) {
    advice = "; check that a ps_server listens there, or give its address as --ps";
  } else if (!answered && absl::IsDeadlineExceeded(status) &&
             absl::EndsWith(status.message(), kNoAnswer)) {
    advice = absl::StrCat(
        " (--timeout=", absl::FormatDuration(command.timeout), ")",
        command.kind == PsctlCommand::Kind::kStatus
            ? ""
            : "; the server may still do it, so look at psctl status before you ask again",
        "; with a longer --timeout there may be an answer");
  }
  if (advice.empty()) return text;
  return Annotated(status, absl::StrCat(status.message(), advice));
}

}  // namespace pushpull
