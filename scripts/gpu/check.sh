#!/usr/bin/env bash
# Runs all checks that need a GPU, within 9 minutes, in the folder that bundle.sh packs. What is worth most comes first,
# and each row of the table is written as it comes, so that a run that is cut off leaves what it found.
# usage: ./check.sh [--only=NAME,...] [--gpus=LIST] [--seconds=N]
#   --only=NAME,...  some of: step operators profile benchmark memcheck racecheck determinism end_to_end mobilenet ssd
#                    bad_cases
#   --gpus=LIST      GPUs of the three clones; default: the first three; if there are fewer, clones share them
#   --seconds=N      time for everything; a check that no longer fits is skipped; default 530
# Environment: DATA, a folder with MNIST's four IDX files (default ./mnist; if missing, drawn shapes); OUT, a folder for
# the table (check.txt) and the logs; PYTHON, with PyTorch (default python3); SANITIZER_FILTER, the tests under
# compute-sanitizer.
# Exit code: 0 if no check failed; 1 if one failed; 69 if there is no GPU.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$here/bin
python=${PYTHON:-python3}
only=""
gpus=""
seconds=530
for argument in "$@"; do
  case "$argument" in
    --only=*) only=,${argument#*=}, ;;
    --gpus=*) gpus=${argument#*=} ;;
    --seconds=*) seconds=${argument#*=} ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 64 ;;
  esac
done
checks=(step operators profile benchmark memcheck racecheck determinism end_to_end mobilenet ssd bad_cases)
for name in ${only//,/ }; do
  [[ " ${checks[*]} " == *" $name "* ]] || { echo "check: no check is called $name: ${checks[*]}" >&2; exit 64; }
done

num_gpus=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU') || true
if [ "$num_gpus" -eq 0 ]; then
  echo "check: no GPU: nvidia-smi lists none" >&2
  exit 69
fi
for program in ps_server worker evaluator cuda_test gpu_step; do
  [ -x "$bin/$program" ] || { echo "check: no $bin/$program: pack it with scripts/gpu/bundle.sh" >&2; exit 66; }
done
if [ -z "$gpus" ]; then
  for ((k = 0; k < 3; ++k)); do gpus+=${gpus:+,}$((k % num_gpus)); done
fi
first_gpu=${gpus%%,*}
export CUDA_DEVICE_ORDER=PCI_BUS_ID
[ -z "${OUT:-}" ] || mkdir -p "$OUT" || exit 66
work=$(mktemp -d)
results=${OUT:-$work}/check.txt
logs=${OUT:-$work}/logs
mkdir -p "$logs" || exit 66
started=$SECONDS

# Ends all processes that the script has started, however the script ends.
pids=()
cleanup() {
  local pid
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2> /dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2> /dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 143' INT TERM

failures=0
# line CHECK FIGURE BAR RESULT: adds a line to the table.
line() { printf '%-28s | %-60s | %-24s | %s\n' "$1" "$2" "$3" "$4" >> "$results"; }
# row CHECK FIGURE BAR RESULT: adds a row to the table and prints it. A RESULT that begins with FAIL counts as failure.
row() {
  line "$@"
  case "$4" in FAIL*) failures=$((failures + 1)) ;; esac
  printf '%-28s %-44s %-26s %s\n' "$1" "$2" "$3" "$4"
}
# left: prints the seconds that are left.
left() { echo $((seconds - (SECONDS - started))); }
# wanted NAME SECONDS: succeeds if the check was requested and SECONDS are left for it.
wanted() {
  [[ -z $only || $only == *,$1,* ]] || return 1
  [ "$(left)" -ge "$2" ] && return 0
  row "$1" "" "" "skipped (only $(left) s are left)"
  return 1
}
# limited SECONDS COMMAND...: runs the command for at most SECONDS and no longer than the time that is left.
limited() {
  local limit=$1 rest
  rest=$(left)
  shift
  [ "$rest" -lt "$limit" ] && limit=$rest
  timeout --kill-after=5 "$((limit > 1 ? limit : 1))" "$@"
}
# why CODE LOG: prints the RESULT of a failed command from its exit code and its log.
why() {
  case "$1" in
    124 | 137) echo "FAIL (out of time)" ;;
    *) echo "FAIL (exit code $1: $(grep -vE '^\s*$' "$2" | tail -n 1 | cut -c1-90))" ;;
  esac
}
# holds EXPRESSION: succeeds if awk finds the numeric expression true.
holds() { awk "BEGIN { exit !($1) }"; }

# train NAME SECONDS WORKER_FLAG...: trains with $work/NAME.config, and with an evaluator if evaluator=1. Returns the
# exit code of the first process that failed, or 0.
evaluator=0
train() {
  local name=$1 limit=$2 code=0 server worker watcher=""
  shift 2
  limited "$limit" "$bin/ps_server" --pipeline_config_path="$work/$name.config" --train_dir="$work/$name" \
    --listen="unix:$work/$name.sock" --state_dir="$work/$name.state" > "$logs/$name.ps_server.log" 2>&1 &
  server=$!
  pids+=("$server")
  if [ "$evaluator" = 1 ]; then
    limited "$limit" "$bin/evaluator" --checkpoint_dir="$work/$name" --data_dir="$data" --gpus="$first_gpu" \
      --gpu_memory_limit_mb=4096 > "$logs/$name.evaluator.log" 2>&1 &
    watcher=$!
    pids+=("$watcher")
  fi
  limited "$limit" "$bin/worker" --ps="unix:$work/$name.sock" --data_dir="$data" "$@" \
    > "$logs/$name.worker.log" 2>&1 &
  worker=$!
  pids+=("$worker")
  wait "$worker" || code=$?
  [ $code -eq 0 ] || kill -TERM "$server" ${watcher:+"$watcher"} 2> /dev/null
  wait "$server" || code=$((code == 0 ? $? : code))
  if [ -n "$watcher" ]; then wait "$watcher" || code=$((code == 0 ? $? : code)); fi
  return $code
}
# background FUNCTION ARGUMENT...: runs the function in a subshell, which ends its processes when it is ended.
background() {
  (
    trap 'kill -TERM $(jobs -p) 2> /dev/null' EXIT
    trap 'exit 143' INT TERM
    "$@"
  ) &
  pids+=("$!")
}
# events NAME EXPRESSION: prints a Python expression of `scalars`, which maps a tag of job NAME to its values in the
# order of steps.
events() {
  "$python" - "$here" "$work/$1" "$2" << 'PYTHON' 2>> "$logs/events.log"
import pathlib
import statistics
import sys

sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import plot_events

scalars = {tag: [value for _, value in sorted(steps.items())]
           for tag, steps in plot_events.read_scalars(pathlib.Path(sys.argv[2])).items()}
print(eval(sys.argv[3], {"scalars": scalars, "statistics": statistics}))
PYTHON
}
settled_rate="statistics.median(scalars['images/sec'][len(scalars['images/sec']) // 2:])"
# final_loss NAME: prints the mean loss of the last fifth of the steps.
final_loss() {
  events "$1" "statistics.mean(scalars['Loss/total_loss'][-max(1, len(scalars['Loss/total_loss']) // 5):])"
}
# config NAME FILE [SED_EXPRESSION]: writes $work/NAME.config from a file in pipelines/.
config() { sed -E "${3:-}" "$here/pipelines/$2" > "$work/$1.config"; }
# large_images: writes 2,048 random images of 224x224 as IDX files, if they do not exist yet.
large_images() {
  local count=2048 hex
  [ ! -f "$work/labels-idx1-ubyte" ] || return 0
  hex=$(printf '%08x' $count | sed 's/../\\x&/g')
  { printf '\x00\x00\x08\x04%b\x00\x00\x00\xe0\x00\x00\x00\xe0\x00\x00\x00\x03' "$hex"
    head -c $((count * 224 * 224 * 3)) /dev/urandom; } > "$work/images-idx4-ubyte"
  { printf '\x00\x00\x08\x01%b' "$hex"
    head -c 200000 /dev/urandom | tr -dc '\000-\011' | head -c $count; } > "$work/labels-idx1-ubyte"
}
# large NAME [SED_EXPRESSION]: writes a config that trains on the large images.
large() {
  large_images
  config "$1" mobilenet_v2_224.config "s#(images|labels)-idx#$work/&#g; ${2:-}"
}
# steps N: prints a sed expression that sets the number of steps in a config and scales the learning rate schedule.
steps() {
  printf '%s' "s/(num_steps|total_steps): [0-9]+/\\1: $1/; s/warmup_steps: [0-9]+/warmup_steps: $(($1 / 12))/"
}

data=${DATA:-$here/mnist}
classifier=mobilenet_v2_mnist.config
data_name=MNIST
for file in train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz t10k-images-idx3-ubyte.gz t10k-labels-idx1-ubyte.gz; do
  [ -f "$data/$file" ] || { classifier=mobilenet_v2_synthetic.config data_name=shapes; }
done
[ $data_name = MNIST ] || data=""

cores=$(nproc)
config mobilenet_cpu $classifier "$(steps 400)"
config mobilenet_gpu $classifier "$(steps 400); s/save_checkpoints_secs: [0-9]+/save_checkpoints_steps: 200/"
config ssd_cpu ssd_shapes.config
config ssd_gpu ssd_shapes.config

nvidia-smi --query-gpu=index,name,driver_version,memory.total,temperature.gpu --format=csv,noheader | tee "$results"
line check figure bar result
echo "three clones on GPUs $gpus, $cores cores, data: $data_name"
echo

# value FILE KEY PATTERN: prints the NUMBER of KEY=NUMBER in the first line that matches the pattern.
value() { grep -m 1 "$3" "$1" | grep -oE "(^| )$2=[0-9.]+" | cut -d= -f2; }

networks=(mobilenet_v2 ssd_mobilenet_v2 ssd_mobilenet_v1)

# Our step alone, with its table of operators.
step() {
  wanted step 20 || return
  local net log code ours
  for net in "${networks[@]}"; do
    log=$logs/step.$net.log code=0
    limited 60 "$bin/gpu_step" --gpu="$first_gpu" --networks="$net" --losses=0 > "$log" 2>&1 || code=$?
    cat "$log"
    ours=$(value "$log" ours "result: net=$net ")
    if [ $code -eq 0 ] && [ -n "$ours" ]; then
      row "$net, our step" "$ours images/s" "" ok
    else
      row "$net, our step" "" "ends with 0" "$(why $code "$log")"
    fi
  done
}

# test_names: prints the names of all tests of operators, one per line.
test_names() {
  "$bin/cuda_test" --gtest_list_tests 2> /dev/null |
    awk '/^[^ ].*\.( |$)/ { suite = $1; next } /^  [^ ]/ { print suite $1 }'
}
# share INDEX: runs the tests in the file names.INDEX. Where a test ends the process or takes too long, it goes on behind
# that test, which it notes in crashed.INDEX.
share() {
  local log=$logs/operators.$1.log names=$work/names.$1 code running
  : > "$log"
  : > "$work/crashed.$1"
  while [ -s "$names" ] && [ "$(left)" -gt 1 ]; do
    code=0
    limited 60 "$bin/cuda_test" --gtest_filter="$(paste -sd: "$names")" > "$work/part.$1" 2>&1 || code=$?
    cat "$work/part.$1" >> "$log"
    [ $code -gt 1 ] || return 0  # gtest says 1 where tests have failed
    running=$(sed -nE 's/^\[ RUN +\] ([^ ,]+).*/\1/p' "$work/part.$1" | tail -n 1)
    echo "${running:-(no test had begun)} exit code $code" >> "$work/crashed.$1"
    [ -n "$running" ] || return 0
    sed -i "0,\\|^$running\$|d" "$names"
  done
}
operators() {
  wanted operators 20 || return
  local shares=$((cores > 8 ? 8 : cores)) k pids_of_shares=() passed skipped failed total crashed
  test_names > "$work/names"
  total=$(grep -c . "$work/names")
  if [ "$total" -eq 0 ]; then
    row "operators, fp32 and bf16" "cuda_test lists no tests" "all" FAIL
    return
  fi
  rm -f "$logs"/operators.*.log
  for ((k = 0; k < shares; ++k)); do
    awk "NR % $shares == $k" "$work/names" > "$work/names.$k"
    background share "$k"
    pids_of_shares+=("$!")
  done
  for k in "${pids_of_shares[@]}"; do wait "$k"; done
  # count RESULT: prints how many tests have this result.
  count() { cat "$logs"/operators.*.log | grep -cE "^\[ +$1 +\] .*\([0-9]+ ms\)"; }
  passed=$(count OK) skipped=$(count SKIPPED) failed=$(count FAILED)
  crashed=$(cat "$work"/crashed.* | paste -sd';' | cut -c1-200)
  if [ "$passed" -gt 0 ] && [ "$failed" -eq 0 ] && [ -z "$crashed" ] && [ $((passed + skipped)) -eq "$total" ]; then
    row "operators, fp32 and bf16" "$passed of $total tests passed, $skipped skipped" "all" ok
  else
    row "operators, fp32 and bf16" "$passed of $total tests passed, $failed failed" "all" \
      "FAIL${crashed:+ ($(cat "$work"/crashed.* | grep -c .) ended the process: $crashed)}"
  fi
}

# tool NAME: prints the path of a program of CUDA's toolkit; nothing if it is not here.
tool() {
  command -v "$1" || find /usr/local/cuda*/bin /opt/nvidia -name "$1" -type f 2> /dev/null | head -n 1
}

# What bounds the kernels of a step: Nsight Compute's basic figures of single launches.
profile() {
  wanted profile 30 || return
  local log=$logs/ncu.csv code=0 ncu launches
  ncu=$(tool ncu)
  if [ -z "$ncu" ]; then
    row "profile" "" "" "skipped (no ncu here)"
    return
  fi
  limited 60 "$ncu" --set basic --csv --kernel-name-base function \
    --kernel-name 'regex:^(Convolution.*Kernel|PointwiseBackwardKernel|(Forward|Backward)Tiles)' --launch-skip 60 --launch-count 40 \
    "$bin/gpu_step" --gpu="$first_gpu" --networks=mobilenet_v2 --steps=1 --repeats=1 --losses=0 > "$log" 2>&1 || code=$?
  launches=$(grep -oE '^"[0-9]+"' "$log" | sort -u | grep -c .)
  if grep -q ERR_NVGPUCTRPERM "$log"; then
    row "profile" "" "" "skipped (no permission to read the GPU's counters)"
  elif [ "$launches" -gt 0 ]; then
    row "profile" "$launches launches in logs/ncu.csv" "" ok
  else
    row "profile" "" "" "$(why $code "$log")"
  fi
}

# sanitize TOOL: runs a choice of the operators' tests under compute-sanitizer, which makes them many times slower.
sanitize() {
  local tool=$1 log=$logs/$1.log code=0 sanitizer
  wanted "$tool" 20 || return
  sanitizer=$(tool compute-sanitizer)
  if [ -z "$sanitizer" ]; then
    row "$tool" "" "0 errors" "skipped (no compute-sanitizer here)"
    return
  fi
  limited 110 "$sanitizer" --tool "$tool" --error-exitcode 99 "$bin/cuda_test" \
    --gtest_filter="${SANITIZER_FILTER:-*OnTwoMultiprocessors.Bfloat16MatchesTheReference/?}" > "$log" 2>&1 || code=$?
  local summary
  summary=$(grep -oE '(ERROR|RACECHECK) SUMMARY: .*' "$log" | tail -n 1)
  if [ $code -eq 0 ] && grep -qE '^\[  PASSED  \] [1-9]' "$log"; then
    row "$tool" "$summary" "0 errors" ok
  elif grep -q 'Device not supported' "$log"; then
    row "$tool" "" "0 errors" "skipped (compute-sanitizer does not support this device)"
  else
    row "$tool" "$summary" "0 errors" "$(why $code "$log")"
  fi
}

determinism() {
  wanted determinism 20 || return
  local code=0 file network a b last
  for network in classifier detector; do
    local source=mobilenet_v2_synthetic.config
    [ $network = classifier ] || source=ssd_shapes.config
    a=${network}_a b=${network}_b
    config $a $source "$(steps 100)"
    config $b $source "$(steps 100)"
    code=0 last=$a
    train $a 60 --num_clones=1 --gpus="$first_gpu" --precision=bf16 || code=$?
    if [ $code -eq 0 ]; then
      last=$b
      train $b 60 --num_clones=1 --gpus="$first_gpu" --precision=bf16 || code=$?
    fi
    if [ $code -ne 0 ]; then
      row "determinism, $network" "" "same bits" "$(why $code "$logs/$last.worker.log")"
      continue
    fi
    local same=1 files=0
    for file in "$work/$a"/ckpt-00000100/*.safetensors; do
      files=$((files + 1))
      cmp -s "$file" "$work/$b/ckpt-00000100/${file##*/}" || same=0
    done
    if [ $same = 1 ] && [ $files -gt 0 ]; then
      row "determinism, $network" "two runs of 100 steps alike" "same bits" ok
    else
      row "determinism, $network" "two runs of 100 steps differ" "same bits" FAIL
    fi
  done
}

# curve NAME: trains with three clones in bf16 on the GPUs and an evaluator, and compares the final loss with that of
# fp32 on the CPU.
curve() {
  local name=$1 code=0 ours theirs speed
  wanted "$name" 30 || return
  evaluator=1
  train "${name}_gpu" 100 --num_clones=3 --gpus="$gpus" --precision=bf16 || code=$?
  evaluator=0
  if [ $code -ne 0 ]; then
    row "$name, 3 clones, evaluator" "" "ends with 0" "$(why $code "$logs/${name}_gpu.worker.log")"
    return
  fi
  speed=$(events "${name}_gpu" "'%.0f images/s' % $settled_rate")
  row "$name, 3 clones, evaluator" "$speed; $(grep -oE '(accuracy|mAP@0.5IOU|mAP).*' "$logs/${name}_gpu.evaluator.log" | tail -n 1 | cut -c1-40)" \
    "ends with 0" ok
  while [ -n "$reference" ] && [ ! -f "$work/${name}_cpu.code" ] && kill -0 "$reference" 2> /dev/null &&
    [ "$(left)" -gt 5 ]; do sleep 0.5; done
  if [ "$(cat "$work/${name}_cpu.code" 2> /dev/null)" != 0 ]; then
    row "$name, bf16 and fp32" "" "within 2 %" "skipped (the run on the CPU failed or was too slow)"
    return
  fi
  ours=$(final_loss "${name}_gpu")
  theirs=$(final_loss "${name}_cpu")
  local result=FAIL
  holds "${ours:-nan} > 0 && ${theirs:-nan} > 0 && ($ours / $theirs - 1)^2 <= 0.02^2" && result=ok
  row "$name, bf16 and fp32" "final loss ${ours:0:7}, on the CPU ${theirs:0:7}" "within 2 %" "$result"
}

# Our step beside PyTorch's, a network at a time.
benchmark() {
  wanted benchmark 40 || return
  local net log code ours compiled best result first mean
  if ! "$python" -c 'import torch' 2> /dev/null; then
    row "benchmark" "" "1.5 x compiled PyTorch" "skipped (no PyTorch here)"
    return
  fi
  for net in "${networks[@]}"; do
    log=$logs/gpu_step.$net.log code=0
    limited 120 "$bin/gpu_step" --gpu="$first_gpu" --networks="$net" --torch="$python" \
      --torch_script="$here/gpu_step_torch.py" > "$log" 2>&1 || code=$?
    cat "$log"
    echo
    [ $code -eq 0 ] || row "$net" "" "ends with 0" "$(why $code "$log")"
    ours=$(value "$log" ours "result: net=$net ")
    [ -n "$ours" ] || continue
    compiled=$(value "$log" compile "result: net=$net ")
    best=${compiled:-$(value "$log" eager "result: net=$net ")}
    result=FAIL
    if [ -z "$best" ]; then
      result="skipped (PyTorch gave no figure)"
    elif holds "$ours >= 1.5 * $best"; then
      result=ok
    fi
    row "$net" "$ours images/s, PyTorch ${compiled:+compiled }${best:-?}" "1.5 x compiled PyTorch" "$result"
    first=$(value "$log" first "losses: net=$net ")
    mean=$(value "$log" mean "losses: net=$net ")
    [ -n "$mean" ] || continue
    result=FAIL
    holds "$first <= 0.005 && $mean <= 0.02" && result=ok
    row "$net, first 50 losses" "the first differs by $first, the means by $mean" "0.005, 0.02" "$result"
  done
}

# steps_in SECONDS BATCH: prints how many steps the GPU makes in SECONDS at the rate $alone, at least 100.
steps_in() { awk "BEGIN { steps = int(${alone:-0} * $1 / $2); print (steps > 100 ? steps : 100) }"; }
end_to_end() {
  wanted end_to_end 40 || return
  local batch bar code alone together log result gradients name
  for batch in 256 64; do
    bar=0.95
    [ $batch = 256 ] || bar=0.80
    log=$logs/gpu_step_$batch.log
    code=0
    limited 40 "$bin/gpu_step" --gpu="$first_gpu" --networks=mobilenet_v2 --batches=$batch --classes=10 --table=none \
      --losses=0 > "$log" 2>&1 || code=$?
    alone=$(value "$log" ours "result: ")
    for gradients in bf16 fp32; do
      name=through_${batch}_$gradients
      # The rate is logged every 2 s. The run is long enough that the second half leaves out the start.
      large "$name" "s/batch_size: 256/batch_size: $batch/; $(steps "$(steps_in 10 $batch)")"
      [ $code -ne 0 ] || train "$name" 50 --num_clones=1 --gpus="$first_gpu" --precision=bf16 \
        --gradient_precision=$gradients || code=$?
      if [ $code -ne 0 ]; then
        [ ! -f "$logs/$name.worker.log" ] || log=$logs/$name.worker.log
        row "batch $batch, $gradients gradients" "" "$bar of the GPU alone" "$(why $code "$log")"
        break
      fi
      together=$(events "$name" "'%.0f' % $settled_rate")
      result=FAIL
      holds "${together:-0} >= $bar * $alone" && result=ok
      row "batch $batch, $gradients gradients" "$together images/s of $alone" "$bar of the GPU alone" "$result"
    done
  done
  large sharing "s/batch_size: 256/batch_size: 768/; $(steps "$(steps_in 12 768)")"
  code=0
  train sharing 60 --num_clones=3 --gpus="$gpus" --precision=bf16 || code=$?
  if [ $code -eq 0 ]; then
    row "end to end, 3 clones sharing" "$(events sharing "'%.0f images/s' % $settled_rate") of $alone" "" ok
  else
    row "end to end, 3 clones sharing" "" "" "$(why $code "$logs/sharing.worker.log")"
  fi
}

# refuses NAME CONFIG_SED PATTERN WORKER_FLAG...: expects that the job fails by itself with a message that matches.
refuses() {
  local name=$1 code=0 log=$logs/$1.worker.log result=FAIL said
  large "$name" "$2"
  local pattern=$3
  shift 3
  train "$name" 45 "$@" || code=$?
  said=$(grep -hE "$pattern" "$log" | head -n 1 | cut -c1-110)
  [ $code -ne 0 ] && [ $code -ne 124 ] && [ $code -ne 137 ] && [ -n "$said" ] && result=ok
  row "$name" "exit code $code: $said" "says so and ends" "$result"
}

killed_clone() {
  local code=0 job clone=""
  config killed mobilenet_v2_synthetic.config "$(steps 3000); s/save_checkpoints_steps: [0-9]+/save_checkpoints_steps: 100/"
  background train killed 100 --num_clones=3 --gpus="$gpus" --precision=bf16
  job=$!
  while kill -0 "$job" 2> /dev/null && ! ls -d "$work"/killed/ckpt-* > /dev/null 2>&1; do sleep 0.1; done
  for process in /proc/[0-9]*; do
    if tr '\0' ' ' < "$process/cmdline" 2> /dev/null | grep -q "$work/killed.sock.*--clone_index=1"; then
      clone=${process#/proc/}
      kill -KILL "$clone" 2> /dev/null
    fi
  done
  wait "$job" || code=$?
  local result=FAIL
  grep -q 'starting it again' "$logs/killed.worker.log" && [ $code -eq 0 ] && [ -n "$clone" ] &&
    ls -d "$work"/killed/ckpt-00003000 > /dev/null 2>&1 && result=ok
  [ $code -eq 0 ] || result=$(why $code "$logs/killed.worker.log")
  row "kill -9 of a clone" "$(grep -oE 'clone 1 died.*' "$logs/killed.worker.log" | head -n 1 | cut -c1-60)" \
    "restarted, training ends" "$result"
}

bad_cases() {
  wanted bad_cases 30 || return
  refuses "no such GPU" "" "GPU.*99|99.*GPU" --num_clones=1 --gpus=99
  refuses "out of memory" "s/batch_size: 256/batch_size: 20000/" "would fit" --num_clones=1 --gpus="$first_gpu"
  killed_clone
}

# The reference curves are computed on the CPU, in the background. They begin once the GPU has been measured, because
# what runs beside a measurement slows it down.
reference=""
references() {
  local name code
  for name in mobilenet ssd; do
    [[ -z $only || $only == *,$name,* ]] || continue
    code=0
    train ${name}_cpu 300 --device=cpu --num_clones=3 --threads=$((cores > 3 ? cores / 3 : 1)) || code=$?
    echo $code > "$work/${name}_cpu.code"
  done
}
begin_references() {
  if [[ -z $only || $only == *,mobilenet,* || $only == *,ssd,* ]]; then
    background references
    reference=$!
  fi
}

step
operators
profile
benchmark
sanitize memcheck
sanitize racecheck
determinism
end_to_end
begin_references
curve mobilenet
curve ssd
[ -z "$reference" ] || kill -TERM "$reference" 2> /dev/null
bad_cases

echo "$failures failed, $((SECONDS - started)) s" >> "$results"
echo
cat "$results"
[ $failures -eq 0 ]
