#!/usr/bin/env bash
# Builds the fuzz targets (tests/fuzz) with Clang, generates seeds and runs the targets. Exit code 1 if one finds a bug.
# usage: scripts/fuzz.sh [--seconds=N] [--jobs=N] [TARGET...]
#   --seconds=N   how long each target runs (default 60)
#   --jobs=N      how many targets run at once (default 1)
#   TARGET        name without _fuzz: record_io, example_codec, ... (default: all targets)
# Corpora stay in build-fuzz/corpus and grow from run to run; inputs that fail are kept in build-fuzz/findings.
set -euo pipefail

seconds=60
jobs=1
targets=()
for argument in "$@"; do
  case "$argument" in
    --seconds=*) seconds=${argument#*=} ;;
    --jobs=*) jobs=${argument#*=} ;;
    -*) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 64 ;;
    *) targets+=("${argument%_fuzz}") ;;
  esac
done
CDPATH='' cd "$(dirname "$0")/.."
if [ ${#targets[@]} -eq 0 ]; then
  mapfile -t targets < <(cd tests/fuzz && printf '%s\n' *_fuzz.cc | sed 's/_fuzz\.cc$//')
fi
for target in "${targets[@]}"; do
  [ -f "tests/fuzz/${target}_fuzz.cc" ] || { echo "fuzz: there is no target $target" >&2; exit 64; }
done
if ! command -v clang++-14 > /dev/null; then
  echo "fuzz: clang++-14 is missing: apt-get install clang-14 libclang-rt-14-dev" >&2
  exit 1
fi

build="build-fuzz"
cmake --preset fuzz > /dev/null
cmake --build $build --target write_seeds "${targets[@]/%/_fuzz}"

# libprotobuf, Abseil and pugixml are built without AddressSanitizer, so the check for container overflows would report
# containers that they fill.
export ASAN_OPTIONS=detect_container_overflow=0:allocator_may_return_null=0
export UBSAN_OPTIONS=print_stacktrace=1 GLOG_logtostderr=1

run_target() {
  local target=$1
  local corpus=$build/corpus/$target findings=$build/findings/$target seeds=$build/seeds/$target
  rm -rf "$findings" "$seeds"
  mkdir -p "$corpus" "$findings" "$seeds"
  $build/bin/write_seeds "$target" tests/golden "$seeds"
  "$build/bin/${target}_fuzz" -max_total_time="$seconds" -max_len=16384 -rss_limit_mb=2048 -malloc_limit_mb=1024 \
    -timeout=10 -print_final_stats=1 -artifact_prefix="$findings/" "$corpus" "$seeds" > "$findings/log" 2>&1 || true
}

# Prints one row about a target from its log, which has lines such as "#1234 DONE cov: 56 ft: 78 ..." and
# "stat::number_of_executed_units: 1234". Fails if there is a finding.
report_target() {
  local target=$1
  local findings=$build/findings/$target
  local log=$findings/log
  local executions rate coverage finding=none
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
  coverage=$(grep -aoE '\bcov: [0-9]+' "$log" | tail -n 1 | cut -d ' ' -f 2 || true)
  local inputs
  inputs=$(find "$findings" -type f ! -name log)
  if [ -n "$inputs" ]; then
    finding=$(head -n 1 <<< "$inputs")
  elif ! grep -aq '^Done [0-9]* runs' "$log"; then
    finding="failed, see $log"
  fi
  printf '%-18s %12s %9s %9s  %s\n' "$target" "${executions:--}" "${rate:--}" "${coverage:--}" "$finding"
  [ "$finding" = none ]
}

for target in "${targets[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  run_target "$target" &
done
wait

code=0
printf '%-18s %12s %9s %9s  %s\n' target executions exec/s coverage finding
for target in "${targets[@]}"; do
  report_target "$target" || code=1
done
exit $code
