# shellcheck shell=bash disable=SC2154
# The checks of check.sh that need neither PyTorch nor a server: our step, the operators, and the tools of CUDA's
# toolkit that look into kernels.

# Our step alone, with its table of operators.
step() {
  wanted step 20 || return
  local net log code ours
  for net in mobilenet_v2 ssd_mobilenet_v2 ssd_mobilenet_v1; do
    log=$logs/step.$net.log code=0
    limited 25 "$log" "$bin/gpu_step" --gpu="$first_gpu" --networks="$net" --losses=0 || code=$?
    cat "$log"
    ours=$(value "$log" ours "result: net=$net ")
    if [ $code -eq 0 ] && [ -n "$ours" ]; then
      row "$net, our step" "$ours images/s" "" ok
    else
      row "$net, our step" "${ours:+$ours images/s}" "ends with 0" "$(why $code "$log")"
    fi
  done
}

# library_folders: prints the folders in which PyTorch keeps NVIDIA's libraries, between colons.
library_folders() {
  "$python" - << 'PYTHON' 2> /dev/null
import pathlib
import sys

folders = (pathlib.Path(path) / "nvidia" for path in sys.path if path)
print(":".join(str(folder) for nvidia in folders for folder in sorted(nvidia.glob("*/lib"))))
PYTHON
}
# Our step with cuDNN and cuBLASLt as candidates.
libraries() {
  wanted libraries 20 || return
  local net log code ours folders
  folders=$(library_folders):${LD_LIBRARY_PATH:-}
  for net in mobilenet_v2 ssd_mobilenet_v2; do
    log=$logs/libraries.$net.log code=0
    LD_LIBRARY_PATH=$folders limited 60 "$log" "$bin/gpu_step" --gpu="$first_gpu" --networks="$net" --losses=0 \
      --gpu_library=auto || code=$?
    cat "$log"
    ours=$(value "$log" ours "result: net=$net ")
    if [ $code -ne 0 ] || [ -z "$ours" ]; then
      row "$net, libraries" "${ours:+$ours images/s}" "ends with 0" "$(why $code "$log")"
    elif grep -q 'our kernels only' "$log"; then
      row "$net, libraries" "" "" "skipped (no cuDNN 9 or cuBLASLt 13 here)"
    else
      row "$net, libraries" "$ours images/s, faster for $(grep -cE 'ward (bf16|fp32) .*: .*(cudnn|cublaslt)/[0-9].* ms' "$log") of \
$(grep -cE 'ward (bf16|fp32) .*, our kernels .* ms' "$log") operators" "" ok
    fi
  done
}

# test_names: prints the names of all tests of operators, one per line.
test_names() {
  "$bin/cuda_test" --gtest_list_tests 2> /dev/null |
    awk '/^[^ ].*\.( |$)/ { suite = $1; next } /^  [^ ]/ { print suite $1 }'
}
# run_tests FILTER LOG: runs some of the tests. Ends the process if it prints nothing for $hang_s seconds, or at
# $operators_end.
run_tests() {
  local size=-1 now quiet_until=$((SECONDS + hang_s)) ended=0
  start 90 "$2" "$bin/cuda_test" --gtest_filter="$1"
  while kill -0 "$started" 2> /dev/null; do
    now=$(stat -c %s "$2")
    [ "$now" = "$size" ] || quiet_until=$((SECONDS + hang_s))
    size=$now
    if [ $ended = 0 ] && { [ "$SECONDS" -ge "$quiet_until" ] || [ "$SECONDS" -ge "$operators_end" ]; }; then
      kill -TERM "$started"
      ended=1
    fi
    sleep 0.1
  done
  wait "$started"
}
# share INDEX: runs the tests in the file names.INDEX. If a test ends the process or hangs, notes it in crashed.INDEX and
# goes on with the test after it.
share() {
  local log=$logs/operators.$1.log names=$work/names.$1 code running
  : > "$log"
  : > "$work/crashed.$1"
  while [ -s "$names" ] && [ "$(left)" -gt 1 ] && [ "$SECONDS" -lt "$operators_end" ]; do
    code=0
    run_tests "$(paste -sd: "$names")" "$work/part.$1" || code=$?
    cat "$work/part.$1" >> "$log"
    [ $code -gt 1 ] || return 0  # gtest says 1 where tests have failed
    running=$(sed -nE 's/^\[ RUN +\] ([^ ,]+).*/\1/p' "$work/part.$1" | tail -n 1)
    case $code in
      143) echo "${running:-(no test had begun)} hung" >> "$work/crashed.$1" ;;
      *) echo "${running:-(no test had begun)} exit code $code" >> "$work/crashed.$1" ;;
    esac
    [ -n "$running" ] || return 0
    sed -i "0,\\|^$running\$|d" "$names"
  done
}
# operators_row CHECK PATTERN: adds the row about the tests whose names match.
operators_row() {
  local total passed skipped failed crashed result=ok
  # count RESULT PATTERN: prints how many tests have this result.
  count() { cat "$logs"/operators.*.log | grep -E "^\[ +$1 +\] .*\([0-9]+ ms\)" | grep -cE "$2"; }
  total=$(grep -cE "$2" "$work/names")
  passed=$(count OK "$2") skipped=$(count SKIPPED "$2") failed=$(count FAILED "$2")
  crashed=$(cat "$work"/crashed.* | grep -E "$2|no test had begun" | paste -sd';')
  if [ "$passed" -eq 0 ] || [ "$failed" -ne 0 ] || [ $((passed + skipped)) -ne "$total" ]; then
    result="FAIL${crashed:+ ($(tr ';' '\n' <<< "$crashed" | grep -c .) ended the process: ${crashed:0:200})}"
  fi
  row "$1" "$passed of $total tests passed, $failed failed, $skipped skipped" "all" "$result"
}
operators() {
  wanted operators 20 || return
  local shares=$((cores > 8 ? 8 : cores)) k shares_started=()
  test_names > "$work/names"
  if [ ! -s "$work/names" ]; then
    row "operators, fp32 and bf16" "cuda_test lists no tests" "all" FAIL
    return
  fi
  rm -f "$logs"/operators.*.log
  operators_end=$((SECONDS + 90 * patience))
  for ((k = 0; k < shares; ++k)); do
    awk "NR % $shares == $k" "$work/names" > "$work/names.$k"
    background share "$k"
    shares_started+=("$started")
  done
  for k in "${shares_started[@]}"; do wait "$k"; done
  operators_row "operators, fp32 and bf16" .
  operators_row "operators, 2 multiprocessors" OnTwoMultiprocessors
}

# What bounds the slowest kernels of a step. Nsight Compute first measures the time of every launch. Then it collects
# its figures of one launch of each of the ten kernels that take longest, and what the warps of each instruction wait for,
# in a run each, because one run can only profile launches that follow one another. The clocks stay as they are: the GPU
# may be shared with others.
profile() {
  wanted profile 30 || return
  local log=$logs/ncu.times.csv code=0 ncu end=$((SECONDS + 75 * patience)) rank=0 profiled=0 all=0 launch share report
  local program=("$bin/gpu_step" "--gpu=$first_gpu" --networks=mobilenet_v2 --steps=1 --repeats=1 --losses=0
    --table=none --bandwidth=1000)
  local sections=(--section SpeedOfLight --section WarpStateStats --section Occupancy --section LaunchStats
    --section MemoryWorkloadAnalysis --section SourceCounters)
  ncu=$(tool ncu)
  if [ -z "$ncu" ]; then
    row "profile" "" "" "skipped (no ncu here)"
    return
  fi
  limited 40 "$log" "$ncu" --clock-control none --csv --metrics gpu__time_duration.sum "${program[@]}" || code=$?
  if grep -q ERR_NVGPUCTRPERM "$log"; then
    row "profile" "" "" "skipped (no permission to read the GPU's counters)"
    return
  fi
  figure slowest "$log" 10 > "$logs/ncu.kernels.txt"
  cat "$logs/ncu.kernels.txt"
  while IFS=$'\t' read -r launch _ share _; do
    [ "$SECONDS" -lt "$end" ] || break
    rank=$((rank + 1))
    report=$work/profile.$rank.ncu-rep
    # --kill: the program need not run to its end.
    limited 20 "$logs/ncu.$rank.log" "$ncu" --clock-control none --export "$report" "${sections[@]}" \
      --launch-skip "$launch" --launch-count 1 --kill yes "${program[@]}"
    limited 20 "$logs/ncu.$rank.csv" "$ncu" --import "$report" --csv --page details
    limited 20 "$logs/ncu.$rank.source.csv" "$ncu" --import "$report" --csv --page source
    figure stalls "$logs/ncu.$rank.source.csv"
    grep -qE '^"[0-9]+",' "$logs/ncu.$rank.csv" || continue
    profiled=$((profiled + 1)) all=$(awk "BEGIN { print $all + $share }")
  done < "$logs/ncu.kernels.txt"
  if [ "$profiled" -gt 0 ]; then
    row "profile" "$profiled kernels, which take $(printf '%.0f' "$all") % of the time, in logs/ncu.*.csv" "" ok
  else
    row "profile" "" "" "$(why $code "$log")"
  fi
}

# Ten cases: kernels for dense and depthwise convolutions in several shapes, and the losses.
sanitized_tests="FusedBackward/*OnTwoMultiprocessors.Bfloat16MatchesTheReference/0\
:FusedBackward/*OnTwoMultiprocessors.Bfloat16MatchesTheReference/3\
:DenseTiles/*OnTwoMultiprocessors.Bfloat16MatchesTheReference/0\
:DenseTiles/*OnTwoMultiprocessors.Bfloat16MatchesTheReference/6\
:DenseTiles/*OnTwoMultiprocessors.Bfloat16MatchesTheReference/12\
:DepthwiseTiles/*OnTwoMultiprocessors.Bfloat16MatchesTheReference/0\
:DepthwiseTiles/*OnTwoMultiprocessors.Bfloat16MatchesTheReference/12\
:DepthwiseTiles/*OnTwoMultiprocessors.Bfloat16MatchesTheReference/30\
:SoftmaxTest/1.MatchesTheCpu:SsdLossTest/1.BreaksTiesLikeTheCpu"
# sanitize TOOL: runs these tests under compute-sanitizer, which makes them many times slower.
sanitize() {
  local tool=$1 log=$logs/$1.log code=0 sanitizer summary
  wanted "$tool" 20 || return
  sanitizer=$(tool compute-sanitizer)
  if [ -z "$sanitizer" ]; then
    row "$tool" "" "0 errors" "skipped (no compute-sanitizer here)"
    return
  fi
  limited 60 "$log" "$sanitizer" --tool "$tool" --error-exitcode 99 "$bin/cuda_test" \
    --gtest_filter="${SANITIZER_FILTER:-$sanitized_tests}" || code=$?
  summary=$(grep -oE '(ERROR|RACECHECK) SUMMARY: .*' "$log" | tail -n 1)
  if [ $code -eq 0 ] && grep -qE '^\[  PASSED  \] [1-9]' "$log"; then
    row "$tool" "$(sed -nE 's/^\[  PASSED  \] ([0-9]+ tests?).*/\1/p' "$log"); $summary" "0 errors" ok
  elif grep -q 'Device not supported' "$log"; then
    row "$tool" "" "0 errors" "skipped (compute-sanitizer does not support this device)"
  else
    row "$tool" "$summary" "0 errors" "$(why $code "$log")"
  fi
}
memcheck() { sanitize memcheck; }
racecheck() { sanitize racecheck; }
