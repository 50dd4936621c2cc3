#!/usr/bin/env bash
# Tests the messages and exit codes of scripts/gpu/check.sh. Small scripts stand for nvidia-smi and for our programs.
# usage: gpu_check_test.sh SOURCE_DIR
set -euo pipefail
source=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/path" "$folder/bundle/bin" "$folder/bundle/pipelines"
cp -r "$source"/scripts/gpu/{check.sh,references.sh,check} "$folder/bundle/"
cp "$source"/scripts/plot_events.py "$folder/bundle/check/"
cp "$source"/deploy/pipelines/*.config "$source"/scripts/gpu/pipelines/*.config "$folder/bundle/pipelines/"
unset CUDA_VISIBLE_DEVICES
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
program path/nvidia-smi 'case $1 in
  -L) for k in 0 1 2; do echo "GPU $k: Made Up (UUID: GPU-${k}a)"; done ;;
  --id=[012]) echo "${1#*=}, Made Up, 1.0" ;;
  *) exit 9 ;;
esac'
expect 66 'no .*/bin/ps_server: pack it'
for name in ps_server evaluator gpu_step; do program "bundle/bin/$name" 'exit 70'; done

program bundle/bin/worker 'echo "NOT_FOUND: there is no GPU 99" >&2; exit 66'
# tests SCRIPT: installs a cuda_test that lists the tests A.B and C/D.OnTwoMultiprocessors/0 and otherwise runs the
# script.
tests() {
  program bundle/bin/cuda_test 'case "$*" in
    *--gtest_list_tests*) printf "A.\n  B\nC/OnTwoMultiprocessors.\n  E/0  # GetParam() = 3\n"; exit 0 ;;
  esac
  '"$1"
}
both='operators, fp32 and bf16'
two='operators, 2 multiprocessors'
# shellcheck disable=SC2016
{
tests 'case "$*" in *A.B*) echo "[       OK ] A.B (1 ms)" ;; esac
  case "$*" in *C/On*) echo "[       OK ] C/OnTwoMultiprocessors.E/0 (0 ms)" ;; esac'
expect 0 "$both.*2 of 2 tests passed, 0 failed, 0 skipped.*ok\$" --only=operators
grep -qE "$two.*1 of 1 tests passed.*ok\$" "$folder/out/check.txt" || fail "no row in OUT/check.txt"
grep -q '1 ms' "$folder"/out/logs/operators.*.log || fail "no logs in OUT/logs"
tests 'case "$*" in *A.B*) echo "[       OK ] A.B (1 ms)" ;; esac
  case "$*" in *C/On*) echo "[  SKIPPED ] C/OnTwoMultiprocessors.E/0 (0 ms)" ;; esac'
expect 1 "$both.*1 of 2 tests passed, 0 failed, 1 skipped.*ok\$" --only=operators
grep -qE "$two.*FAIL$" "$folder/log" || fail "tests that were all skipped passed"
passes='echo "[       OK ] C/OnTwoMultiprocessors.E/0 (1 ms)"'
tests 'case "$*" in *A.B*) echo "[  FAILED  ] A.B (1 ms)"; exit 1 ;; esac; '"$passes"
expect 1 "$both.*1 of 2 tests passed, 1 failed.*FAIL\$" --only=operators
grep -qE "$two.*ok$" "$folder/log" || fail "the failure of one test hid another"
tests 'case "$*" in *A.B*) echo "[ RUN      ] A.B"; kill -SEGV $$ ;; esac; '"$passes"
expect 1 "$both.*1 of 2 tests passed.*FAIL \\(1 ended the process: A.B exit code 139" --only=operators
grep -qE "$two.*ok$" "$folder/log" || fail "the end of one process hid another"
tests 'case "$*" in *A.B*) echo "[ RUN      ] A.B"; sleep 600 ;; esac; '"$passes"
HANG_S=1 expect 1 "$both.*1 of 2 tests passed.*FAIL \\(1 ended the process: A.B hung" --only=operators
tests 'case "$*" in *C/On*) echo "[ RUN      ] C/OnTwoMultiprocessors.E/0, where GetParam() = 3"; exit 124 ;; esac
  echo "[       OK ] A.B (1 ms)"'  # 124: as timeout ends it
expect 1 "$two.*0 of 1 tests passed.*FAIL \\(1 ended the process: C/OnTwo.*/0 exit code 124" --only=operators
tests 'exit 0'
expect 1 "$both.*0 of 2 tests passed.*FAIL" --only=operators
program bundle/bin/cuda_test 'exit 70'
expect 1 'operators.*lists no tests.*FAIL' --only=operators
}
expect 0 'operators.*skipped \(only [0-5] s are left\)' --only=operators --seconds=5

expect 0 'profile.*skipped \(no ncu here\)' --only=profile
# shellcheck disable=SC2016
program path/ncu 'for argument in "$@"; do
    case "$last" in
      --launch-skip) skip=$argument ;; --export) export=$argument ;; --import) import=$argument ;; --page) page=$argument ;;
    esac
    last=$argument
  done
  echo "==PROF== Connected to process 7"
  [ -z "$export" ] || { echo $skip > "$export"; exit 0; }
  if [ "$page" = source ]; then
    printf "\"Kernel Name\",\"launch $(cat "$import")\"\n\"Source\",\"# Samples\",\"Instructions Executed\",\"stall_wait\"\n"
    printf "\"@P0 LDG.E R1\",\"3\",\"1,000\",\"3\"\n\"FADD R2\",\"1\",\"3,000\",\"1\"\n"
    exit 0
  fi
  printf "\"ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n"
  [ -z "$import" ] || { echo "\"0\",\"launch $(cat "$import")\",\"Duration\",\"us\",\"1\""; exit 0; }
  row() { echo "\"$1\",\"$2\",\"gpu__time_duration.sum\",\"us\",\"$3\""; }
  row 0 "One<int>(int, int)" 1.0; row 1 "Two(int)" 1,002.0; row 2 "Two(int)" 2,997.0
  row 3 "Two(int)" nan  # a launch that could not be measured'
expect 0 'profile.*2 kernels, which take 100 % of the time, in logs/ncu.*ok$' --only=profile
grep -qP '^2\t2.9970\t100.0\tTwo\(int\)$' "$folder/out/logs/ncu.kernels.txt" || fail "no list of kernels"
printf '%s\n' '1 2.0' '2 1.0' > "$folder/ours.losses"
printf '%s\n' '1 2.5' '2 1.0' '3 9.0' > "$folder/theirs.losses"
[ "$(python3 "$source/scripts/gpu/check/figures.py" early "$folder/ours.losses" "$folder/theirs.losses")" = 10.00 ] ||
  fail "a wrong difference between first losses"
grep -q 'launch 2' "$folder/out/logs/ncu.1.csv" || fail "the slowest launch was not profiled first"
python3 "$source/scripts/gpu/check/figures.py" stalls "$folder/out/logs/ncu.1.source.csv" > "$folder/stalls" ||
  fail "no figures of the instructions"
grep -q 'waits in: LDG 75.0, FADD 25.0' "$folder/stalls" || fail "wrong shares of the waits"
grep -q 'instructions: FADD 75.0, LDG 25.0' "$folder/stalls" || fail "wrong shares of the instructions"
program path/ncu 'echo "==ERROR== ERR_NVGPUCTRPERM"; exit 1'
expect 0 'profile.*skipped \(no permission' --only=profile
program path/ncu 'echo "it fell over"; exit 3'
expect 1 'profile.*FAIL \(exit code 3: it fell over' --only=profile

program path/compute-sanitizer 'echo "========= ERROR SUMMARY: 0 errors"; echo "[  PASSED  ] 3 tests."'
expect 0 'memcheck.*0 errors.*ok$' --only=memcheck
program path/compute-sanitizer 'echo "========= RACECHECK SUMMARY: 2 hazards"; echo "[  PASSED  ] 3 tests."; exit 99'
expect 1 'racecheck.*2 hazards.*FAIL' --only=racecheck
expect 1 'determinism, classifier.*FAIL \(exit code 66: NOT_FOUND: there is no GPU 99' --only=determinism

program bundle/bin/gpu_step 'echo "  result: net=mobilenet_v2 batch=256 ours=150.0 compile=100.0 eager=50.0 max-autotune=120.0"
echo "  result: net=ssd_mobilenet_v2 batch=128 ours=149.0 compile=100.0"
echo "  losses: net=mobilenet_v2 first=0.00100 mean=0.01000 largest=0.5"
echo "  losses: net=ssd_mobilenet_v2 first=0.00100 mean=0.03000 largest=0.5"'
program path/python3 'echo "No module named torch" >&2; exit 1'
expect 0 'benchmark.*skipped \(no PyTorch here: No module named torch\)' --only=benchmark
expect 1 '^mobilenet_v2, our step.*150.0 images/s.*ok$' --only=step
grep -qE '^ssd_mobilenet_v1, our step.*FAIL' "$folder/log" || fail "a network without a figure passed"
grep -qE '^ssd_mobilenet_v2, our step.*149.0 images/s.*ok$' "$folder/log" || fail "the failure of one network hid another"
program path/python3 'exit 0'
expect 0 '^mobilenet_v2, compile .*150.0 images/s, PyTorch 100.0.*ok$' --only=benchmark
grep -qE '^mobilenet_v2, eager .*150.0 images/s, PyTorch 50.0.*ok$' "$folder/log" || fail "no row for eager PyTorch"
grep -qE '^mobilenet_v2, first 50 losses.*ok$' "$folder/log" || fail "losses within the bar did not pass"
expect 1 '^ssd_mobilenet_v2, compile .*FAIL$' --only=benchmark_ssd
grep -qE '^ssd_mobilenet_v2, first 50 losses.*FAIL$' "$folder/log" || fail "losses beyond the bar passed"
grep -qE '^mobilenet_v2, max-autotune .*PyTorch 120.0.*FAIL$' "$folder/log" || fail "a rate below the bar passed"
grep -qE '^ssd_mobilenet_v2, eager .*PyTorch gave no figure' "$folder/log" || fail "no figure of PyTorch was no skip"

# The GPUs that CUDA_VISIBLE_DEVICES leaves. nvidia-smi lists all three.
# visible VARIABLE GPUS LIST...: expects this list of GPUs for the clones, and these in nvidia-smi's table.
visible() {
  local variable=$1 gpus=$2
  shift 2
  CUDA_VISIBLE_DEVICES=$variable expect 1 "three clones on GPUs $gpus," --only=step
  diff <(sed -n '/^check/q;p' "$folder/out/check.txt") <(printf '%s, Made Up, 1.0\n' "$@") > "$folder/log" ||
    fail "other GPUs for CUDA_VISIBLE_DEVICES=$variable"
}
visible 2,0 0,1,0 2 0
visible GPU-1 0,0,0 1
visible " 1 , GPU-0a ,7,2" 0,1,0 1 0
expect 1 "three clones on GPUs 0,1,2," --only=step
CUDA_VISIBLE_DEVICES="" expect 69 'no GPU: nvidia-smi lists none of CUDA_VISIBLE_DEVICES=$' --only=step
CUDA_VISIBLE_DEVICES=GPU- expect 69 'no GPU: nvidia-smi lists none of' --only=step
CUDA_VISIBLE_DEVICES=-1,0 expect 69 'no GPU: nvidia-smi lists none of' --only=step
echo "gpu_check_test: ok"
