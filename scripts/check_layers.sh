#!/usr/bin/env bash
# Checks the layers of the tree: which folders may include which, which files may use gRPC, flags and clocks, and that
# errors keep their payloads.
# usage: scripts/check_layers.sh [ROOT]      exit code 1 and one line per violation: FILE:LINE: why
set -uo pipefail
root=${1:-$(dirname "$0")/..}
CDPATH='' cd "$root" || exit 64

violations=0
# forbid WHY PATTERN FILE...: no line of the files may match the extended regular expression.
forbid() {
  local why=$1 pattern=$2 hits
  shift 2
  [ $# -gt 0 ] || return 0
  hits=$(grep -HnE "$pattern" "$@" | sed -E "s|^([^:]+:[0-9]+):.*|\1: $why|")
  if [ -n "$hits" ]; then
    echo "$hits"
    violations=$((violations + $(wc -l <<< "$hits")))
  fi
}
# files FIND_ARGUMENT...: stores the C++ and CUDA files that `find` reports for the arguments in the array `found`.
files() {
  mapfile -t found < <(find "$@" -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) 2> /dev/null | sort)
}
# includes FOLDER|...: prints a regular expression that matches an #include "..." of a file in one of the folders.
includes() { echo "^[[:space:]]*#[[:space:]]*include[[:space:]]*\"($1)/"; }

mapfile -t found < <(find protos -name '*.proto' 2> /dev/null)
forbid "protos import only protos" '^import "(common|kernels|ps_server|worker|tests|scripts)/' "${found[@]}"
files common
forbid "common may include only common and protos" "$(includes 'kernels|ps_server|worker|tests|scripts')" "${found[@]}"
# Inside common, a folder may include only itself and the folders that are listed below.
# module MODULE ALLOWED: checks common/MODULE, which may include the folders of common in the alternation ALLOWED (A|B|...).
module() {
  files "common/$1"
  forbid "common/$1 may include no other folders of common than ${2//|/, }" \
    "^[[:space:]]*#[[:space:]]*include[[:space:]]*\"common/($(other_modules "$2|$1"))/" "${found[@]}"
}
# other_modules A|B|...: prints the folders of common that are not in the alternation, as another alternation.
other_modules() {
  local all=(base config model checkpoint wire optimizer cluster trace cli) others=() name
  for name in "${all[@]}"; do
    [[ "|$1|" == *"|$name|"* ]] || others+=("$name")
  done
  (IFS='|'; echo "${others[*]}")
}
module base 'base'
module config 'base'
module model 'base|config'
module checkpoint 'base|config|model'
module wire 'base|config|model'
module optimizer 'base|config|model|wire'
module cluster 'base|wire'
module trace 'base'
module cli 'base|config|wire'
# What both sides agree on does not depend on how it is sent.
files common/wire common/wire/codecs -maxdepth 1
forbid "common/wire includes nothing of its folders grpc, security and shared_memory" \
  "$(includes 'common/wire/(grpc|security|shared_memory)')" "${found[@]}"
files kernels
forbid "kernels may include only kernels and common" "$(includes 'protos|ps_server|worker|tests|scripts')" "${found[@]}"
files ps_server
forbid "ps_server may not include worker, tests or scripts" "$(includes 'worker|tests|scripts')" "${found[@]}"
forbid "ps_server may use the CPU part of kernels only" "$(includes 'kernels/cuda')" "${found[@]}"
files worker
forbid "worker may not include ps_server, tests or scripts" "$(includes 'ps_server|tests|scripts')" "${found[@]}"

# Test helpers lie beside the tests of their module; those that several modules use are in tests/testkit.
mapfile -t test_modules < <(find tests/{common,kernels,ps_server,scripts,worker} -mindepth 1 -maxdepth 1 -type d 2> /dev/null)
for module in "${test_modules[@]}" tests/testkit; do
  others=()
  for other in "${test_modules[@]}"; do
    [ "$other" = "$module" ] || others+=("$other")
  done
  files "$module"
  forbid "tests include helpers of their own module and of tests/testkit only" "$(includes "$(IFS='|'; echo "${others[*]}")")" "${found[@]}"
done

# The client library is for models of any kind, so it knows nothing of ours, nor of our data.
files worker/client
forbid "worker/client may include only common, protos and worker/sampling" \
  "$(includes 'kernels|worker/(cli|data|eval|export|model|records|train)')" "${found[@]}"
files worker/sampling
forbid "worker/sampling may include only common" \
  "$(includes 'protos|kernels|worker/(cli|client|data|eval|export|model|records|train)')" "${found[@]}"

# The checkpoint is the only way from training to evaluation and export.
files worker/eval worker/export worker/evaluator_main.cc worker/exporter_main.cc
forbid "evaluation and export may not know the parameter server's client" \
  '^[[:space:]]*#[[:space:]]*include[[:space:]]*"(common/wire/(grpc|security|shared_memory)/|common/wire/ps_client\.h|common/wire/ps_handler\.h|worker/(client|train)/)' "${found[@]}"

# The state machines are tested without threads, clocks, files and sockets, so they must not use any.
files ps_server/core
forbid "ps_server/core is pure: no threads, store or RPC" "$(includes 'ps_server/(runtime|store|transport|monitoring)|common/wire/(grpc|security|shared_memory)')" "${found[@]}"
forbid "ps_server/core is pure: no threads, clocks, files" \
  '^[[:space:]]*#[[:space:]]*include[[:space:]]*(<(thread|mutex|condition_variable|future|chrono|fstream|filesystem|unistd\.h)>|"(absl/synchronization/|common/base/(clock|monotonic_wait|file_system|thread_pool)\.h))' \
  "${found[@]}"

# Monitoring receives figures and does not know which code produces them. HTTP is used in one file only.
files ps_server/monitoring
forbid "ps_server/monitoring may not include the rest of ps_server" "$(includes 'ps_server/(core|store|runtime|transport)|common/wire/(grpc|security|shared_memory)')" "${found[@]}"
files common kernels ps_server worker
outside=()
for file in "${found[@]}"; do
  [ "$file" = ps_server/monitoring/http_server.cc ] || outside+=("$file")
done
forbid "HTTP belongs to ps_server/monitoring/http_server.cc" \
  '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]microhttpd\.h' "${outside[@]}"

# gRPC is used in the client, in the server's transport, in the runtime above it and in the mains.
files common kernels ps_server worker
outside=()
for file in "${found[@]}"; do
  case "$file" in
    common/wire/grpc/* | common/wire/security/* | common/wire/shared_memory/* | ps_server/transport/* | ps_server/runtime/* | *_main.cc) ;;
    *) outside+=("$file") ;;
  esac
done
forbid "gRPC belongs to common/wire/{grpc,security,shared_memory}, ps_server/{transport,runtime} and the mains" \
  '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"](grpc/|grpcpp/|grpc\+\+/|protos/[a-z_]*\.grpc\.pb\.h)' "${outside[@]}"

# Flags and the environment are read by mains only; device_flags.cc has the flags that several of them share.
outside=()
for file in "${found[@]}"; do
  case "$file" in
    common/cli/* | worker/cli/device_flags.cc | *_main.cc) ;;
    *) outside+=("$file") ;;
  esac
done
forbid "flags are read in mains only" '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"](absl/flags|gflags)/' "${outside[@]}"
forbid "the environment is read in mains only" '(^|[^_[:alnum:]])(secure_)?getenv\(' "${outside[@]}"
# Abseil's timed waits follow the wall clock, and so do the standard library's waits until a time of the system clock.
outside=()
for file in "${found[@]}"; do
  case "$file" in
    common/base/monotonic_wait.*) ;;
    *) outside+=("$file") ;;
  esac
done
forbid "timed waits belong to common/base/monotonic_wait.h: the others follow the wall clock" \
  '(Await|Wait|LockWhen|WaitForNotification)With(Timeout|Deadline)|(^|[^[:alnum:]_])((wait|try_lock|try_acquire)_(for|until)|sleep_until|(pthread|sem|mtx|cnd)_[a-z_]*timed[a-z]*)[[:space:]]*\(' \
  "${outside[@]}"
# The wall clock serves for dates that people read, for the validity of certificates, and for the age of a checkpoint that
# another process has saved. It never measures a duration within a process.
outside=()
for file in "${found[@]}"; do
  case "$file" in
    common/trace/event_writer.h | common/wire/security/t* | common/wire/grpc/steady_timers.cc | ps_server/runtime/checkpointer.cc | ps_server/runtime/server.cc | worker/make_records_main.cc) ;;
    *) outside+=("$file") ;;
  esac
done
forbid "the wall clock is not for timing: use common/base/clock.h or Deadline" \
  'absl::Now([^[:alnum:]_]|$)|system_clock|ToChronoTime|CLOCK_REALTIME|(^|[^[:alnum:]_])(gettimeofday|time)\((NULL|nullptr|&)' "${outside[@]}"
# In Debian's build of Abseil, absl::string_view is not std::string_view.
forbid "use absl::string_view" 'std::string_view' "${found[@]}"
# A status that is made from the code of another loses its payloads, such as the mark that the error may pass.
outside=()
for file in "${found[@]}"; do
  case "$file" in
    common/base/passing_error.cc | worker/cli/device_choice.cc) ;; # errors of GPUs have exit codes of their own
    *) outside+=("$file") ;;
  esac
done
forbid "use Annotated (common/base/passing_error.h), which keeps the payloads of the error" \
  '(absl::Status( [a-z_]+)?\(|^[[:space:]]+)[][[:alnum:]_.>()*-]*(\.|->)code\(\),' "${outside[@]}"

if [ $violations -gt 0 ]; then
  echo "layers: $violations violations"
  exit 1
fi
echo "layers: ok"
