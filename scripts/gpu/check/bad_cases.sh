# shellcheck shell=bash disable=SC2154
# The checks of check.sh for what has to fail with a message, and for a clone that is killed.

# refuses NAME CONFIG_SED PATTERN WORKER_FLAG...: expects that the job fails by itself with a message that matches.
refuses() {
  local name=$1 pattern=$3 code=0 log=$logs/$1.worker.log result=FAIL said
  large "$name" "$2"
  shift 3
  train "$name" 45 "$@" || code=$?
  said=$(grep -ahoE "[^:]*$pattern.*" "$log" | head -n 1 | cut -c1-110)
  [ $code -ne 0 ] && [ $code -ne 124 ] && [ $code -ne 137 ] && [ -n "$said" ] && result=ok
  row "$name" "exit code $code: $said" "says so and ends" "$result"
}

killed_clone() {
  local code=0 job process clone="" last result=FAIL count=$((600 / shorten)) every=$((100 / shorten))
  config killed mobilenet_v2_synthetic.config "$(steps 600); s/save_checkpoints_(steps|secs): [0-9]+/save_checkpoints_steps: $every/"
  background train killed 100 --num_clones=3 --gpus="$gpus" --precision=bf16
  job=$started
  while kill -0 "$job" 2> /dev/null && ! ls -d "$work"/killed/ckpt-* > /dev/null 2>&1; do sleep 0.1; done
  for process in /proc/[0-9]*; do
    if tr '\0' ' ' < "$process/cmdline" 2> /dev/null | grep -q "$work/killed.sock.*--clone_index=1"; then
      clone=${process#/proc/}
      kill -KILL "$clone" 2> /dev/null
    fi
  done
  wait "$job" || code=$?
  last=$(printf 'ckpt-%08d' $count)
  [ -n "$clone" ] && [ -d "$work/killed/$last" ] && grep -aq 'starting it again' "$logs/killed.worker.log" && result=ok
  [ $code -eq 0 ] || result=$(why $code "$logs/killed.worker.log")
  row "kill -9 of a clone" "$(grep -aoE 'clone 1 died.*' "$logs/killed.worker.log" | head -n 1 | cut -c1-60)" \
    "restarted, training ends" "$result"
}

bad_cases() {
  wanted bad_cases 30 || return
  refuses "no such GPU" "" "no GPU 99" --num_clones=1 --gpus=99
  refuses "out of memory" "$(batch 20000)" "would fit" --num_clones=1 --gpus="$first_gpu"
  killed_clone
}
