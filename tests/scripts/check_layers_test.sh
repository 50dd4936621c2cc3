#!/usr/bin/env bash
# Plants one violation at a time in a small tree and expects scripts/check_layers.sh to name its place.
# usage: check_layers_test.sh SOURCE_DIR
set -uo pipefail
check=$1/scripts/check_layers.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

reset() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree"/{protos,common/{base,cli,config,optimizer,wire/{codecs,grpc}},kernels/cpu,ps_server/{core,runtime,store,monitoring},worker/{cli,client,eval,sampling,train},tests/{testkit,ps_server/{store,psctl}}}
  echo '#include "common/x.h"' > "$tree/kernels/cpu/fine.cc"
  echo '#include "grpcpp/grpcpp.h"' > "$tree/common/wire/grpc/fine.cc"
  echo '#include "common/wire/grpc/x.h"' > "$tree/common/wire/grpc/fine.h"
  echo '#include "absl/flags/flag.h"' > "$tree/worker/worker_main.cc"
  echo '#include "absl/flags/flag.h"' > "$tree/worker/cli/device_flags.cc"
  echo '#include "common/checkpoint/x.h"' > "$tree/worker/eval/fine.cc"
  echo '#include "worker/sampling/x.h"' > "$tree/worker/client/fine.cc"
  echo '#include "tests/ps_server/store/x.h"' > "$tree/tests/ps_server/store/fine.cc"
  echo '#include "tests/testkit/x.h"' > "$tree/tests/ps_server/psctl/fine.cc"
}

# expect_caught FILE LINE: writes the line into the file and expects that the check fails and names FILE:1.
expect_caught() {
  reset
  echo "$2" > "$tree/$1"
  local output
  if output=$("$check" "$tree"); then
    echo "FAILED: not caught in $1: $2"
    failures=$((failures + 1))
  elif ! grep -q "^$1:1: " <<< "$output"; then
    echo "FAILED: $1:1 is not named for $2; got: $output"
    failures=$((failures + 1))
  fi
}

reset
if ! "$check" "$tree" > /dev/null; then
  echo "FAILED: a clean tree is refused: $("$check" "$tree")"
  failures=$((failures + 1))
fi
expect_caught protos/a.proto 'import "common/a.proto";'
expect_caught common/a.h '#include "worker/x.h"'
expect_caught common/a.cc '#include "kernels/x.h"'
expect_caught common/base/a.h '#include "common/wire/x.h"'
expect_caught common/config/a.cc '#include "common/model/x.h"'
expect_caught common/wire/grpc/a.cc '#include "common/cluster/x.h"'
expect_caught common/optimizer/a.cc '#include "common/checkpoint/x.h"'
expect_caught common/wire/a.h '#include "common/optimizer/x.h"'
expect_caught common/wire/a.h '#include "common/wire/security/x.h"'
expect_caught common/wire/codecs/a.cc '#include "common/wire/grpc/x.h"'
expect_caught common/a.cc '#include <grpcpp/grpcpp.h>'
expect_caught common/a.cc '#include "protos/parameter_server.grpc.pb.h"'
expect_caught common/a.cc '#include "absl/flags/flag.h"'
expect_caught worker/cli/device_choice.cc '#include "absl/flags/flag.h"'
expect_caught common/a.cc 'const char* home = std::getenv("HOME");'
expect_caught common/a.h 'void F(std::string_view name);'
expect_caught common/a.cc '  mutex_.AwaitWithTimeout(absl::Condition(&stop_), kPeriod);'
expect_caught common/wire/grpc/a.cc '  if (done.WaitForNotificationWithTimeout(kPeriod)) return;'
expect_caught kernels/cpu/a.cc '  changed.WaitWithDeadline(&mutex, deadline);'
expect_caught ps_server/runtime/a.h '  mutex_.ReaderLockWhenWithTimeout(condition, kPeriod);'
expect_caught worker/train/a.cc '  changed.wait_until(lock, std::chrono::steady_clock::now() + period);'
expect_caught worker/train/a.cc '  if (future.wait_for(period) == std::future_status::ready) return;'
expect_caught kernels/cpu/a.cc '  pthread_cond_timedwait(&changed, &mutex, &until);'
expect_caught worker/train/a.cc '  const absl::Time start = absl::Now();'
expect_caught worker/a_main.cc '  context.set_deadline(std::chrono::system_clock::now() + timeout);'
expect_caught worker/a_main.cc '  clock_gettime(CLOCK_REALTIME, &now);'
expect_caught worker/a_main.cc '  srand(time(nullptr));'
expect_caught ps_server/core/a.cc '#include "common/base/monotonic_wait.h"'
expect_caught kernels/cpu/a.cc '#  include "ps_server/x.h"'
expect_caught kernels/cpu/a.cc '#include "protos/pipeline.pb.h"'
expect_caught ps_server/store/a.cc '#include "worker/model/x.h"'
expect_caught ps_server/store/a.cc '#include "kernels/cuda/x.h"'
expect_caught ps_server/core/a.cc '#include "ps_server/store/variable_store.h"'
expect_caught ps_server/core/a.cc '#include <thread>'
expect_caught ps_server/core/a.cc '#include "common/base/clock.h"'
expect_caught ps_server/monitoring/a.cc '#include "ps_server/runtime/server.h"'
expect_caught ps_server/monitoring/a.cc '#include <microhttpd.h>'
expect_caught worker/train/a.cc '#include "ps_server/core/x.h"'
expect_caught worker/client/a.cc '#include "worker/data/x.h"'
expect_caught worker/client/a.h '#include "worker/train/x.h"'
expect_caught worker/client/a.cc '#include "kernels/bfloat16.h"'
expect_caught worker/sampling/a.cc '#include "worker/data/x.h"'
expect_caught worker/eval/a.cc '#include "worker/client/x.h"'
expect_caught worker/eval/a.cc '#include "common/wire/ps_client.h"'
expect_caught worker/eval/a.cc '#include "common/wire/grpc/client.h"'
expect_caught worker/evaluator_main.cc '#include "worker/train/x.h"'
expect_caught tests/ps_server/psctl/a.cc '#include "tests/ps_server/store/x.h"'
expect_caught tests/testkit/a.h '#include "tests/ps_server/store/x.h"'
expect_caught common/a.cc '  return absl::Status(info.status().code(), "no");'
expect_caught ps_server/core/a.cc '  const absl::Status reason(status.code(), "no");'
expect_caught worker/train/a.cc '      event->status.code(),'

[ $failures -eq 0 ] || exit 1
echo "all violations were caught"
