#!/usr/bin/env bash
# Tests the messages and exit codes of scripts/gpu/check.sh. Small scripts stand for nvidia-smi and for our programs.
# usage: gpu_check_test.sh SOURCE_DIR
set -euo pipefail
source=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/path" "$folder/bundle/bin" "$folder/bundle/pipelines"
cp "$source"/scripts/gpu/check.sh "$source"/scripts/plot_events.py "$folder/bundle/"
cp "$source"/deploy/pipelines/*.config "$source"/scripts/gpu/pipelines/*.config "$folder/bundle/pipelines/"
export PATH="$folder/path:$PATH"

fail() {
  echo "gpu_check_test: $1" >&2
  cat "$folder/log" >&2
  exit 1
}
# program NAME SCRIPT: installs the shell script under this name.
program() {
  printf '#!/usr/bin/env bash\n%s\n' "$2" > "$folder/$1"
  chmod +x "$folder/$1"
}
# expect CODE PATTERN ARGUMENT...: runs check.sh and expects this exit code, and output that matches the pattern.
expect() {
  local wanted=$1 pattern=$2 code=0
  shift 2
  OUT=$folder/out "$folder/bundle/check.sh" "$@" > "$folder/log" 2>&1 || code=$?
  [ $code -eq "$wanted" ] || fail "exit code $code, expected $wanted: $*"
  grep -qE "$pattern" "$folder/log" || fail "no output matches \"$pattern\": $*"
}

program path/nvidia-smi 'echo "NVIDIA-SMI has failed"; exit 9'
expect 69 'no GPU: nvidia-smi lists none'
expect 64 'no check is called swim: step operators' --only=operators,swim
expect 64 'usage' --fast

# shellcheck disable=SC2016
program path/nvidia-smi 'case $1 in -L) echo "GPU 0: Made Up (UUID: GPU-0)" ;; *) echo "0, Made Up, 1.0" ;; esac'
expect 66 'no .*/bin/ps_server: pack it'
for name in ps_server evaluator gpu_step; do program "bundle/bin/$name" 'exit 70'; done

program bundle/bin/worker 'echo "NOT_FOUND: there is no GPU 99" >&2; exit 66'
# tests SCRIPT: installs a cuda_test that lists the tests A.B and C/D.E/0 and otherwise runs the script.
tests() {
  program bundle/bin/cuda_test 'case "$*" in
    *--gtest_list_tests*) printf "A.\n  B\nC/D.\n  E/0  # GetParam() = 3\n"; exit 0 ;;
  esac
  '"$1"
}
# shellcheck disable=SC2016
{
tests 'case "$*" in *A.B*) echo "[       OK ] A.B (1 ms)" ;; esac
  case "$*" in *C/D.E/0*) echo "[  SKIPPED ] C/D.E/0 (0 ms)" ;; esac'
expect 0 'operators.*1 of 2 tests passed, 1 skipped.*ok$' --only=operators
grep -qE '^operators.*ok$' "$folder/out/check.txt" || fail "no row in OUT/check.txt"
grep -q '1 ms' "$folder"/out/logs/operators.*.log || fail "no logs in OUT/logs"
tests 'case "$*" in *A.B*) echo "[  FAILED  ] A.B (1 ms)"; exit 1 ;; esac; echo "[       OK ] C/D.E/0 (1 ms)"'
expect 1 'operators.*1 of 2 tests passed, 1 failed.*FAIL$' --only=operators
tests 'case "$*" in *A.B*) echo "[ RUN      ] A.B"; kill -SEGV $$ ;; esac; echo "[       OK ] C/D.E/0 (1 ms)"'
expect 1 'operators.*1 of 2 tests passed.*FAIL \(1 ended the process: A.B exit code 139' --only=operators
tests 'case "$*" in *C/D*) echo "[ RUN      ] C/D.E/0, where GetParam() = 3"; exit 124 ;; esac
  echo "[       OK ] A.B (1 ms)"'  # 124: as timeout ends it
expect 1 'operators.*1 of 2 tests passed.*FAIL \(1 ended the process: C/D.E/0 exit code 124' --only=operators
tests 'exit 0'
expect 1 'operators.*0 of 2 tests passed.*FAIL' --only=operators
program bundle/bin/cuda_test 'exit 70'
expect 1 'operators.*lists no tests.*FAIL' --only=operators
}
expect 0 'operators.*skipped \(only [0-5] s are left\)' --only=operators --seconds=5

expect 0 'profile.*skipped \(no ncu here\)' --only=profile
program path/ncu 'printf "\"ID\",\"Metric\"\n\"0\",\"1\"\n\"0\",\"2\"\n\"1\",\"1\"\n"'
expect 0 'profile.*2 launches in logs/ncu.csv.*ok$' --only=profile
program path/ncu 'echo "==ERROR== ERR_NVGPUCTRPERM"; exit 1'
expect 0 'profile.*skipped \(no permission' --only=profile
program path/ncu 'echo "it fell over"; exit 3'
expect 1 'profile.*FAIL \(exit code 3: it fell over' --only=profile

program path/compute-sanitizer 'echo "========= ERROR SUMMARY: 0 errors"; echo "[  PASSED  ] 3 tests."'
expect 0 'memcheck.*0 errors.*ok$' --only=memcheck
program path/compute-sanitizer 'echo "========= RACECHECK SUMMARY: 2 hazards"; echo "[  PASSED  ] 3 tests."; exit 99'
expect 1 'racecheck.*2 hazards.*FAIL' --only=racecheck
expect 1 'determinism, classifier.*FAIL \(exit code 66: NOT_FOUND: there is no GPU 99' --only=determinism

program bundle/bin/gpu_step 'echo "  result: net=mobilenet_v2 batch=256 ours=150.0 compile=100.0 eager=50.0"
echo "  result: net=ssd_mobilenet_v2 batch=128 ours=149.0 compile=100.0"
echo "  losses: net=mobilenet_v2 first=0.00100 mean=0.01000 largest=0.5"
echo "  losses: net=ssd_mobilenet_v2 first=0.00100 mean=0.03000 largest=0.5"'
program path/python3 'exit 1'
expect 0 'benchmark.*skipped \(no PyTorch here\)' --only=benchmark
expect 1 '^mobilenet_v2, our step.*150.0 images/s.*ok$' --only=step
grep -qE '^ssd_mobilenet_v1, our step.*FAIL' "$folder/log" || fail "a network without a figure passed"
grep -qE '^ssd_mobilenet_v2, our step.*149.0 images/s.*ok$' "$folder/log" || fail "the failure of one network hid another"
program path/python3 'exit 0'
expect 1 '^mobilenet_v2 .*150.0 images/s, PyTorch compiled 100.0.*ok$' --only=benchmark
grep -qE '^ssd_mobilenet_v2 .*FAIL$' "$folder/log" || fail "a rate below the bar passed"
grep -qE '^mobilenet_v2, first 50 losses.*ok$' "$folder/log" || fail "losses within the bar did not pass"
grep -qE '^ssd_mobilenet_v2, first 50 losses.*FAIL$' "$folder/log" || fail "losses beyond the bar passed"
echo "gpu_check_test: ok"
