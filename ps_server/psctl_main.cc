// psctl shows the state of a running job and sends commands to its server.
// Tested by tests/e2e/elasticity_test.py.
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/base/file_system.h"
#include "common/base/status_macros.h"
#include "common/cli/exit_codes.h"
#include "common/cli/flag_checks.h"
#include "common/cli/main_support.h"
#include "common/cli/print_result.h"
#include "common/cli/security_flags.h"
#include "common/cluster/resolve_cluster.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "common/wire/security/transport_credentials.h"
#include "ps_server/psctl/command.h"
#include "ps_server/psctl/state_command.h"
#include "ps_server/store/state_folder.h"

ABSL_FLAG(std::vector<std::string>, ps, std::vector<std::string>({pushpull::kDefaultPsAddress}),
          "Address of ps task 0: host:port or unix:/path; further addresses are ignored");
ABSL_FLAG(
    std::string, output, "text",
    "Output format: text, or json (proto3 JSON with the field names of parameter_server.proto)");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(10),
          "How long to wait for the answer, such as 30s or 5m. checkpoint fails after this time "
          "even if the checkpoint is "
          "still being written");
ABSL_FLAG(int, worker_id, -1, "evict: id of the clone, as psctl status shows it");
ABSL_FLAG(
    std::string, state_dir, "",
    "state: folder of mapped state; default: the default --state_dir of ps_server for this user");
ABSL_FLAG(bool, wait, false,
          "scale: wait until a step with the new number is applied, for at most --timeout");
ABSL_FLAG(std::string, reason, "",
          "evict: the reason, for the log of the server and the last message of the clone");

namespace pushpull {
namespace {

absl::Status RunPsctl(const MainArguments& arguments) {
  if (arguments.check_config) return UsageError("--check_config: psctl has no config");
  PsctlFlags flags;
  flags.ps = absl::GetFlag(FLAGS_ps);
  flags.output = absl::GetFlag(FLAGS_output);
  flags.worker_id = absl::GetFlag(FLAGS_worker_id);
  flags.reason = absl::GetFlag(FLAGS_reason);
  flags.wait = absl::GetFlag(FLAGS_wait);
  flags.state_dir = absl::GetFlag(FLAGS_state_dir);
  flags.timeout = absl::GetFlag(FLAGS_timeout);
  PP_ASSIGN_OR_RETURN(const PsctlCommand command, ParsePsctlCommand(arguments.arguments, flags));
  if (command.kind == PsctlCommand::Kind::kStateList ||
      command.kind == PsctlCommand::Kind::kStateClean) {
    PP_RETURN_IF_ERROR(
        CheckNotSet({"ps", "timeout", "tls_ca", "tls_cert", "tls_key", "insecure"},
                    "psctl state, which reads the state of this machine and calls no server"));
    PosixFileSystem files;
    PP_ASSIGN_OR_RETURN(const std::string text, RunStateCommand(command, files, DefaultStateDir()));
    return PrintResult(std::cout, text);
  }
  PP_ASSIGN_OR_RETURN(const TransportSecurity security, TransportSecurityFromFlags());
  PP_RETURN_IF_ERROR(CheckAddresses(security, {command.address}));
  TransportOptions transport;
  PP_ASSIGN_OR_RETURN(transport.credentials,
                      TransportCredentials::Create(security, {PeerRole::kAdmin}));
  SteadyClock clock;
  const std::unique_ptr<PsClient> client = MakeGrpcPsClient(command.address, transport);
  PP_ASSIGN_OR_RETURN(const std::string text, RunPsctlCommand(command, client.get(), &clock));
  return PrintResult(std::cout, text);
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  pushpull::MainOptions options;
  options.usage = pushpull::PsctlUsage();
  options.takes_arguments = true;
  return pushpull::FinishMain(pushpull::RunPsctl(pushpull::InitMain(argc, argv, options)));
}
