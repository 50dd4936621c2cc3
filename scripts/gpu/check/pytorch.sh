# shellcheck shell=bash disable=SC2154
# The checks of check.sh that compare our step with PyTorch's. Each mode of PyTorch is a run of its own, so that one that
# fails or takes too long leaves the figures of the others.

# has_pytorch CHECK: succeeds if PyTorch is here. Otherwise adds a row that says so.
has_pytorch() {
  local log=$logs/pytorch.log code=0 result
  limited 60 "$log" "$python" -c 'import torch; print(torch.__version__)' || code=$?
  [ $code -ne 0 ] || return 0
  result="skipped (no PyTorch here: $(tail -n 1 "$log" | cut -c1-80))"
  [ $code -ne 124 ] || result=$(why $code "$log")
  row "$1" "" "1.5 x compiled PyTorch" "$result"
  return 1
}

# beside NETWORK MODE SECONDS FLAG...: runs our step and PyTorch's in turns and adds a row. Compiled PyTorch sets the bar.
beside() {
  local net=$1 mode=$2 limit=$3 log=$logs/pytorch.$1.$2.log code=0 ours theirs result=ok bar="" first mean
  shift 3
  limited "$limit" "$log" "$bin/gpu_step" --gpu="$first_gpu" --networks="$net" --table=none --torch="$python" \
    --torch_script="$here/gpu_step_torch.py" --torch_modes="$mode" "$@" || code=$?
  cat "$log"
  echo
  ours=$(value "$log" ours "result: net=$net ")
  theirs=$(value "$log" "$mode" "result: net=$net ")
  [ "$mode" = eager ] || bar="1.5 x compiled PyTorch"
  if [ $code -ne 0 ]; then
    result=$(why $code "$log")
  elif [ -z "$theirs" ]; then
    result="skipped (PyTorch gave no figure)"
  elif [ -n "$bar" ]; then
    result=$(verdict "$ours >= 1.5 * $theirs")
  fi
  row "$net, $mode" "${ours:-?} images/s, PyTorch ${theirs:-?}" "$bar" "$result"
  mean=$(value "$log" mean "losses: net=$net ")
  [ -n "$mean" ] || return
  first=$(value "$log" first "losses: net=$net ")
  row "$net, first 50 losses" "the first differs by $first, the means by $mean" "0.005, 0.02" \
    "$(verdict "$first <= 0.005 && $mean <= 0.02")"
}

# MobileNetV2 beside PyTorch, with the time of PyTorch's kernels.
benchmark() {
  wanted benchmark 40 || return
  has_pytorch benchmark || return
  beside mobilenet_v2 eager 60 --torch_profile=20
  beside mobilenet_v2 compile 90 --losses=0 --torch_profile=20
}

# The detectors beside PyTorch, and both networks beside PyTorch's long search for the fastest kernels.
benchmark_ssd() {
  wanted benchmark_ssd 40 || return
  has_pytorch benchmark_ssd || return
  beside ssd_mobilenet_v2 eager 60
  beside ssd_mobilenet_v2 compile 120 --losses=0
  local net
  for net in mobilenet_v2 ssd_mobilenet_v2; do
    if [ "$(left)" -lt 40 ]; then
      row "$net, max-autotune" "" "1.5 x compiled PyTorch" "skipped (only $(left) s are left)"
      continue
    fi
    beside $net max-autotune 300 --losses=0
  done
}
