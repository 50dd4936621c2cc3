#!/usr/bin/env bash
# Plants sources without tests in a small tree and expects scripts/check_tests.sh to name them.
# usage: check_tests_test.sh SOURCE_DIR
set -uo pipefail
check=$1/scripts/check_tests.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# expect_caught FILE LINE
expect_caught() {
  mkdir -p "$tree/$(dirname "$1")"
  printf '%s\n' "$2" > "$tree/$1"
  local output
  if output=$("$check" "$tree") || ! grep -q "^$1: " <<< "$output"; then
    echo "FAILED: not caught in $1: $2; got: $output"
    failures=$((failures + 1))
  fi
  rm "$tree/$1"
}

mkdir -p "$tree"/{common/base,kernels/cuda,worker,tests/common/base,tests/e2e}
touch "$tree/tests/common/base/clock_test.cc" "$tree/tests/e2e/all_test.py" "$tree/common/base/clock.cc"
echo '// Tested by tests/common/base/clock_test.cc.' > "$tree/kernels/cuda/pool.cu"
printf '// Copies.\n//\n// Tested by tests/e2e/all_test.py.\n' > "$tree/worker/worker_main.cc"
echo '// Not tested: it only returns an error.' > "$tree/worker/no_gpu.cc"
if ! "$check" "$tree" > /dev/null; then
  echo "FAILED: a clean tree is refused: $("$check" "$tree")"
  failures=$((failures + 1))
fi
expect_caught common/base/random.cc '#include "common/base/random.h"'
expect_caught kernels/cuda/softmax.cu '// The losses.'
expect_caught common/base/random.cc '// Tested by tests/common/base/random_test.cc.'
expect_caught common/base/random.h '// Tested by tests/common/base/random_test.cc.'
expect_caught common/base/random.cc '// Tested by the tests of its users.'
expect_caught worker/late.cc "$(seq -f '// Line %g.' 50; echo '// Tested by tests/e2e/all_test.py.')"

[ $failures -eq 0 ] || exit 1
echo "all sources without tests were caught"
