#include "common/cluster/resolve_cluster.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "common/base/status_macros.h"
#include "common/cluster/slurm_environment.h"
#include "common/cluster/tf_config.h"
#include "common/wire/transport_security.h"

namespace pushpull {
namespace {

constexpr char kDefault[] = "default";

// Returns the value of the flags if there is one, otherwise that of the environment.
template <typename T>
std::optional<Sourced<T>> First(const std::optional<Sourced<T>>& flags,
                                const std::optional<Sourced<T>>& environment) {
  return flags.has_value() ? flags : environment;
}

// Returns for example "flag --tasks=3" or "3 (TF_CONFIG)".
std::string Show(const Sourced<int>& value) {
  if (absl::StartsWith(value.source, "flag ")) return absl::StrCat(value.source, "=", value.value);
  return absl::StrCat(value.value, " (", value.source, ")");
}

absl::Status Refuse(absl::string_view what, const ClusterView& environment,
                    absl::string_view remedy) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, environment.gaps.empty() ? "" : ": ", environment.gaps, "; ", remedy));
}

absl::Status CheckOwnRole(Role role, const ClusterView& environment) {
  if (!environment.role.has_value() || environment.role->value == role) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      environment.role->source, " says that this process is the ",
      RoleName(environment.role->value), ", but the program is ", ProgramOf(role), "; start ",
      ProgramOf(environment.role->value), " here, or take the variable out of its environment"));
}

absl::Status CheckAtLeast(int least, const std::optional<Sourced<int>>& value) {
  if (!value.has_value() || value->value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Show(*value), ", expected at least ", least));
}

// Returns whether the text can be a name, an IPv4 address, or an IPv6 address in brackets.
bool IsHost(absl::string_view host) {
  const bool has_brackets = absl::ConsumePrefix(&host, "[");
  if (has_brackets && !absl::ConsumeSuffix(&host, "]")) return false;
  return !host.empty() && host.find_first_of(has_brackets ? "[]/ \t" : "[]:/ \t") == host.npos;
}

// Returns what to change in an address that is not host:port, or an empty text.
std::string AddressHint(absl::string_view address) {
  if (const size_t scheme = address.find("://"); scheme != address.npos) {
    return absl::StrCat("; leave out ", address.substr(0, scheme + 3));
  }
  const bool may_be_ipv6 = std::count(address.begin(), address.end(), ':') > 1;
  return may_be_ipv6 ? "; an IPv6 address needs brackets, such as [::1]:2222" : "";
}

absl::StatusOr<std::string> PortOf(const std::string& address, int least) {
  const size_t colon = address.rfind(':');
  int port = 0;
  // SimpleAtoi takes a sign, and spaces on both sides, so the first and the last must be digits.
  if (colon == std::string::npos || !IsHost(address.substr(0, colon)) ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < least || port > 65535 ||
      !absl::ascii_isdigit(address[colon + 1]) || !absl::ascii_isdigit(address.back())) {
    return absl::InvalidArgumentError(absl::StrCat("expected host:port with a port from ", least,
                                                   " to 65535", AddressHint(address)));
  }
  return address.substr(colon + 1);
}

// Checks that the address is host:port with a port from least_port to 65535, or unix:/path.
absl::Status CheckAddress(const std::string& address, int least_port) {
  if (absl::StartsWith(address, kUnixPrefix)) return UnixSocketPath(address).status();
  return PortOf(address, least_port).status();
}

// Checks --listen, where port 0 stands for a free one.
absl::Status CheckListen(const std::optional<std::string>& listen) {
  if (!listen.has_value()) return absl::OkStatus();
  const absl::Status status = CheckAddress(*listen, 0);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("--listen=", *listen, ": ", status.message()));
}

// Returns where a ps task listens if its peers reach it at `address`.
absl::StatusOr<std::string> ListenAddress(const std::string& address) {
  if (IsLocalAddress(address)) return address;
  PP_ASSIGN_OR_RETURN(const std::string port, PortOf(address, 1));
  return absl::StrCat("0.0.0.0:", port);
}

absl::StatusOr<ClusterSpec> ResolveWorker(const ClusterView& flags,
                                          const ClusterView& environment) {
  PP_RETURN_IF_ERROR(CheckAtLeast(1, flags.num_workers));
  PP_RETURN_IF_ERROR(CheckAtLeast(0, flags.index));
  ClusterSpec spec;
  spec.role = Role::kWorker;
  const bool scheduled = environment.index.has_value() || environment.num_workers.has_value();
  const auto ps = First(flags.ps, environment.ps);
  if (!ps.has_value() && scheduled) {
    return Refuse("no address of a ps task is known", environment, "give --ps");
  }
  spec.ps = ps.value_or(Sourced<std::vector<std::string>>{{kDefaultPsAddress}, kDefault});
  PP_RETURN_IF_ERROR(CheckPsAddresses(spec.ps));
  spec.num_ps = {static_cast<int>(spec.ps.value.size()), spec.ps.source};

  const auto num_workers = First(flags.num_workers, environment.num_workers);
  if (!num_workers.has_value() && scheduled) {
    return Refuse("the number of workers is not known", environment, "give --num_workers");
  }
  spec.num_workers = num_workers.value_or(Sourced<int>{1, kDefault});
  const auto index = First(flags.index, environment.index);
  if (!index.has_value() && spec.num_workers.value > 1) {
    return Refuse(absl::StrCat("which of the ", spec.num_workers.value, " workers (",
                               spec.num_workers.source, ") this is, is not known"),
                  environment, "give --worker_index");
  }
  spec.index = index.value_or(Sourced<int>{0, kDefault});
  if (spec.index.value >= spec.num_workers.value) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker index: ", Show(spec.index),
                     " is not within the number of workers: ", Show(spec.num_workers)));
  }
  return spec;
}

// Resolves a ps_server that serves all tasks in one process.
absl::StatusOr<ClusterSpec> ResolveWholePs(const ClusterView& flags,
                                           const std::optional<std::string>& listen) {
  ClusterSpec spec;
  spec.role = Role::kPs;
  spec.index = {-1, kDefault};
  spec.num_ps = flags.num_ps.value_or(Sourced<int>{1, kDefault});
  spec.listen = {kDefaultPsAddress, kDefault};
  if (listen.has_value()) spec.listen = {*listen, "flag --listen"};
  return spec;
}

// Sets spec->ps and spec->num_ps, and checks that they agree with each other.
absl::Status ResolveTasks(const ClusterView& flags, const ClusterView& environment,
                          ClusterSpec* spec) {
  auto ps = First(flags.ps, environment.ps);
  auto num_ps = First(flags.num_ps, environment.num_ps);
  if (!num_ps.has_value() && ps.has_value()) {
    num_ps = {static_cast<int>(ps->value.size()), ps->source};
  }
  if (!num_ps.has_value()) {
    return Refuse("the number of ps tasks is not known", environment,
                  "give --tasks, and --cluster with all addresses");
  }
  if (!ps.has_value() && num_ps->value == 1 && environment.own_address.has_value()) {
    ps = {{environment.own_address->value}, environment.own_address->source};
  }
  if (!ps.has_value()) {
    return Refuse(absl::StrCat("the addresses of the ", num_ps->value, " ps tasks are not known"),
                  environment, "give --cluster with one per task");
  }
  PP_RETURN_IF_ERROR(CheckPsAddresses(*ps));
  if (static_cast<int>(ps->value.size()) != num_ps->value) {
    return absl::InvalidArgumentError(absl::StrCat("number of ps tasks: ", Show(*num_ps),
                                                   " contradicts the ", ps->value.size(),
                                                   " addresses of ", ps->source));
  }
  spec->num_ps = *std::move(num_ps);
  spec->ps = *std::move(ps);
  return absl::OkStatus();
}

absl::StatusOr<ClusterSpec> ResolvePs(const ClusterView& flags,
                                      const std::optional<std::string>& listen,
                                      const ClusterView& environment) {
  PP_RETURN_IF_ERROR(CheckAtLeast(1, flags.num_ps));
  PP_RETURN_IF_ERROR(CheckAtLeast(0, flags.index));
  const auto index = First(flags.index, environment.index);
  if (!index.has_value()) {
    const auto ps = First(flags.ps, environment.ps);
    if (!ps.has_value()) return ResolveWholePs(flags, listen);
    return Refuse(absl::StrCat("which of the ", ps->value.size(), " ps tasks (", ps->source,
                               ") this is, is not known"),
                  environment, "give --task_index");
  }
  ClusterSpec spec;
  spec.role = Role::kPs;
  spec.index = *index;
  PP_RETURN_IF_ERROR(ResolveTasks(flags, environment, &spec));
  if (spec.index.value >= spec.num_ps.value) {
    return absl::InvalidArgumentError(
        absl::StrCat("ps task index: ", Show(spec.index),
                     " is not within the number of ps tasks: ", Show(spec.num_ps)));
  }
  const std::string& own = spec.ps.value[spec.index.value];
  if (environment.own_address.has_value() && environment.own_address->value != own) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.ps.source, " has ", own, " as the address of ps task ", spec.index.value,
                     ", which contradicts ", environment.own_address->source, ": ",
                     environment.own_address->value));
  }
  if (listen.has_value()) {
    spec.listen = {*listen, "flag --listen"};
  } else {
    PP_ASSIGN_OR_RETURN(const std::string address, ListenAddress(own));
    spec.listen = {address, absl::StrCat("own address of ", spec.ps.source)};
  }
  return spec;
}

}  // namespace

absl::StatusOr<ClusterView> ReadClusterEnvironment(Role role, const Environment& environment) {
  const auto tf_config = environment.find("TF_CONFIG");
  if (tf_config != environment.end() && !tf_config->second.empty()) {
    return ReadTfConfig(role, tf_config->second);
  }
  return ReadSlurmEnvironment(environment);
}

absl::StatusOr<ClusterSpec> ResolveCluster(Role role, const ClusterView& flags,
                                           const std::optional<std::string>& listen,
                                           const ClusterView& environment) {
  PP_RETURN_IF_ERROR(CheckOwnRole(role, environment));
  switch (role) {
    case Role::kPs:
      PP_RETURN_IF_ERROR(CheckListen(listen));
      return ResolvePs(flags, listen, environment);
    case Role::kWorker:
      return ResolveWorker(flags, environment);
    case Role::kEvaluator:
      break;
  }
  ClusterSpec spec;
  spec.role = Role::kEvaluator;
  return spec;
}

absl::StatusOr<ClusterSpec> FindCluster(Role role, const ClusterView& flags,
                                        const std::optional<std::string>& listen,
                                        const Environment& environment) {
  PP_ASSIGN_OR_RETURN(const ClusterView view, ReadClusterEnvironment(role, environment));
  return ResolveCluster(role, flags, listen, view);
}

absl::Status CheckPsAddresses(const Sourced<std::vector<std::string>>& ps) {
  std::set<std::string> seen;
  for (const std::string& address : ps.value) {
    const auto wrong = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat(ps.source, ": address \"", address,
                                                     "\" of ps task ", seen.size(), ": ", why));
    };
    const absl::Status form = CheckAddress(address, 1);
    if (!form.ok()) return wrong(form.message());
    if (!seen.insert(address).second) return wrong("another task has it too");
  }
  return absl::OkStatus();
}

absl::Status CheckRole(Role role, const Environment& environment) {
  PP_ASSIGN_OR_RETURN(const ClusterView view, ReadClusterEnvironment(role, environment));
  return CheckOwnRole(role, view);
}

}  // namespace pushpull
