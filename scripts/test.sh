#!/usr/bin/env bash
# Installs the packages, builds everything and runs all tests.
# usage: scripts/test.sh [--asan | --tsan] [--full]
#   --asan, --tsan   build with this sanitizer, in build-asan or build-tsan
#   --full           run the long forms of the tests (a hundred thousand simulator schedules)
set -euo pipefail

preset=release
full=0
for argument in "$@"; do
  case "$argument" in
    --asan) preset=asan ;;
    --tsan) preset=tsan ;;
    --full) full=1 ;;
    *) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 64 ;;
  esac
done
CDPATH='' cd "$(dirname "$0")/.."

scripts/setup.sh
cmake --preset "$preset" > /dev/null
build=build
[ "$preset" = release ] || build=build-$preset
cmake --build "$build"

if [ "$full" = 1 ]; then
  export PUSHPULL_TEST_FULL=1 PUSHPULL_SIM_SCHEDULES=100000
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
# Two more than the machine has cores, because many tests wait most of the time.
ctest --preset "$preset" -j "$(($(nproc) + 2))" 2>&1 | tee "$log" || code=$?
# "100% tests passed, 0 tests failed out of 421"
summary=$(grep -E 'tests passed, [0-9]+ tests failed out of [0-9]+' "$log" || true)
failed=$(sed -E 's/.* ([0-9]+) tests failed.*/\1/' <<< "$summary")
total=$(sed -E 's/.* out of ([0-9]+).*/\1/' <<< "$summary")
if [ -z "$summary" ]; then
  echo "test: ctest gave no summary" >&2
  exit 1
fi
# ctest counts skipped tests as passed. It lists them at its end: "	 17 - e2e_gpu (Skipped)"
skipped=$(grep -cE '^[[:space:]]+[0-9]+ - .+ \(Skipped\)$' "$log" || true)
torch=$(grep -cE '^[[:space:]]+[0-9]+ - .*torch.* \(Skipped\)$' "$log" || true)
[ "$torch" = 0 ] || echo "$torch of the skipped tests need PyTorch; CONTRIBUTING.md says how to run them"
echo "$((total - failed - skipped)) passed, $failed failed, $skipped skipped"
exit $code
