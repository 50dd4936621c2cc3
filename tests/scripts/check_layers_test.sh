#!/usr/bin/env bash
# Plants violations in a small tree and expects scripts/check_layers.sh to name their places.
# usage: check_layers_test.sh SOURCE_DIR
set -uo pipefail
check=$1/scripts/check_layers.sh
source "$1/tests/scripts/planted_lines.sh"

mkdir -p "$tree"/{common/wire/grpc,kernels/cpu,worker/{cli,client,eval},tests/ps_server/{store,psctl}}
echo '#include "common/x.h"' > "$tree/kernels/cpu/fine.cc"
echo '#include "grpcpp/grpcpp.h"' > "$tree/common/wire/grpc/fine.cc"
echo '#include "common/wire/grpc/x.h"' > "$tree/common/wire/grpc/fine.h"
echo '#include "absl/flags/flag.h"' > "$tree/worker/worker_main.cc"
echo '#include "absl/flags/flag.h"' > "$tree/worker/cli/device_flags.cc"
echo '#include "common/checkpoint/x.h"' > "$tree/worker/eval/fine.cc"
echo '#include "worker/sampling/x.h"' > "$tree/worker/client/fine.cc"
echo '#include "tests/ps_server/store/x.h"' > "$tree/tests/ps_server/store/fine.cc"
echo '#include "tests/testkit/x.h"' > "$tree/tests/ps_server/psctl/fine.cc"
expect_clean "$check"

plant protos/a.proto 'import "common/a.proto";'
plant common/a.h '#include "worker/x.h"'
plant common/a.cc '#include "kernels/x.h"'
plant common/base/a.h '#include "common/wire/x.h"'
plant common/config/a.cc '#include "common/model/x.h"'
plant common/wire/grpc/a.cc '#include "common/cluster/x.h"'
plant common/optimizer/a.cc '#include "common/checkpoint/x.h"'
plant common/wire/a.h '#include "common/optimizer/x.h"'
plant common/wire/a.h '#include "common/wire/security/x.h"'
plant common/wire/codecs/a.cc '#include "common/wire/grpc/x.h"'
plant common/a.cc '#include <grpcpp/grpcpp.h>'
plant common/a.cc '#include "protos/parameter_server.grpc.pb.h"'
plant common/a.cc '#include "absl/flags/flag.h"'
plant worker/cli/device_choice.cc '#include "absl/flags/flag.h"'
plant common/a.cc 'const char* home = std::getenv("HOME");'
plant common/a.h 'void F(std::string_view name);'
plant common/a.cc '  mutex_.AwaitWithTimeout(absl::Condition(&stop_), kPeriod);'
plant common/wire/grpc/a.cc '  if (done.WaitForNotificationWithTimeout(kPeriod)) return;'
plant kernels/cpu/a.cc '  changed.WaitWithDeadline(&mutex, deadline);'
plant ps_server/runtime/a.h '  mutex_.ReaderLockWhenWithTimeout(condition, kPeriod);'
plant worker/train/a.cc '  changed.wait_until(lock, std::chrono::steady_clock::now() + period);'
plant worker/train/a.cc '  if (future.wait_for(period) == std::future_status::ready) return;'
plant kernels/cpu/a.cc '  pthread_cond_timedwait(&changed, &mutex, &until);'
plant worker/train/a.cc '  const absl::Time start = absl::Now();'
plant worker/a_main.cc '  context.set_deadline(std::chrono::system_clock::now() + timeout);'
plant worker/a_main.cc '  clock_gettime(CLOCK_REALTIME, &now);'
plant worker/a_main.cc '  srand(time(nullptr));'
plant ps_server/core/a.cc '#include "common/base/monotonic_wait.h"'
plant kernels/cpu/a.cc '#  include "ps_server/x.h"'
plant kernels/cpu/a.cc '#include "protos/pipeline.pb.h"'
plant ps_server/store/a.cc '#include "worker/model/x.h"'
plant ps_server/store/a.cc '#include "kernels/cuda/x.h"'
plant ps_server/core/a.cc '#include "ps_server/store/variable_store.h"'
plant ps_server/core/a.cc '#include <thread>'
plant ps_server/core/a.cc '#include "common/base/clock.h"'
plant ps_server/monitoring/a.cc '#include "ps_server/runtime/server.h"'
plant ps_server/monitoring/a.cc '#include <microhttpd.h>'
plant worker/train/a.cc '#include "ps_server/core/x.h"'
plant worker/client/a.cc '#include "worker/data/x.h"'
plant worker/client/a.h '#include "worker/train/x.h"'
plant worker/client/a.cc '#include "kernels/bfloat16.h"'
plant worker/sampling/a.cc '#include "worker/data/x.h"'
plant worker/eval/a.cc '#include "worker/client/x.h"'
plant worker/eval/a.cc '#include "common/wire/ps_client.h"'
plant worker/eval/a.cc '#include "common/wire/grpc/client.h"'
plant worker/evaluator_main.cc '#include "worker/train/x.h"'
plant tests/ps_server/psctl/a.cc '#include "tests/ps_server/store/x.h"'
plant tests/testkit/a.h '#include "tests/ps_server/store/x.h"'
plant common/a.cc '  return absl::Status(info.status().code(), "no");'
plant ps_server/core/a.cc '  const absl::Status reason(status.code(), "no");'
plant worker/train/a.cc '      event->status.code(),'

expect_all_caught "$check"
