# shellcheck shell=bash disable=SC2154
# The checks of check.sh that train with ps_server. references.sh uses the same configs and functions.

# begin_training: chooses the data and writes the configs of the learning curves.
begin_training() {
  local file classifier=mobilenet_v2_mnist.config
  cores=$(nproc)
  shorten=${SHORTEN:-1}
  data=${DATA:-$here/mnist} data_name=MNIST
  for file in train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte; do
    [ -f "$data/$file.gz" ] || { classifier=mobilenet_v2_synthetic.config data_name=shapes; }
  done
  [ $data_name = MNIST ] || data=""
  config mobilenet_cpu $classifier "$(steps 400)"
  config mobilenet_gpu $classifier "$(steps 400); s/save_checkpoints_secs: [0-9]+/save_checkpoints_steps: $((200 / shorten))/"
  config ssd_cpu ssd_shapes.config "$(steps 300)"
  config ssd_gpu ssd_shapes.config "$(steps 300)"
}

# config NAME FILE [SED_EXPRESSION]: writes $work/NAME.config from a file in pipelines/.
config() { sed -E "${3:-}" "$here/pipelines/$2" > "$work/$1.config"; }
# steps N: prints a sed expression that sets the number of steps in a config, divided by SHORTEN, and scales the learning
# rate schedule.
steps() {
  local count=$(($1 / shorten))
  printf '%s' "s/(num_steps|total_steps): [0-9]+/\\1: $count/; s/warmup_steps: [0-9]+/warmup_steps: $((count / 12))/"
}
# batch N: prints a sed expression that sets the training's batch size, divided by SHORTEN.
batch() { printf '%s' "/^train_config/,/^}/ s/batch_size: [0-9]+/batch_size: $((($1 + shorten - 1) / shorten))/"; }
# large NAME [SED_EXPRESSION]: writes a config that trains on random images of 224x224 in IDX files. Writes these files
# (308 MB) on the first call.
large() {
  local count=$((2048 / shorten)) hex
  if [ ! -f "$work/labels-idx1-ubyte" ]; then
    hex=$(printf '%08x' $count | sed 's/../\\x&/g')
    { printf '\x00\x00\x08\x04%b\x00\x00\x00\xe0\x00\x00\x00\xe0\x00\x00\x00\x03' "$hex"
      head -c $((count * 224 * 224 * 3)) /dev/urandom; } > "$work/images-idx4-ubyte"
    { printf '\x00\x00\x08\x01%b' "$hex"
      head -c 200000 /dev/urandom | tr -dc '\000-\011' | head -c $count; } > "$work/labels-idx1-ubyte"
  fi
  config "$1" mobilenet_v2_224.config "s#(images|labels)-idx#$work/&#g; ${2:-}"
}

# train NAME SECONDS WORKER_FLAG...: trains with $work/NAME.config, and with an evaluator if evaluator=1. Returns the
# exit code of the first process that failed, or 0.
evaluator=0
train() {
  local name=$1 limit=$2 code=0 server worker watcher=""
  shift 2
  start "$limit" "$logs/$name.ps_server.log" "$bin/ps_server" --pipeline_config_path="$work/$name.config" \
    --train_dir="$work/$name" --listen="unix:$work/$name.sock" --state_dir="$work/$name.state"
  server=$started
  if [ "$evaluator" = 1 ]; then
    start "$limit" "$logs/$name.evaluator.log" "$bin/evaluator" --checkpoint_dir="$work/$name" --data_dir="$data" \
      --gpus="$first_gpu" --gpu_memory_limit_mb=4096
    watcher=$started
  fi
  start "$limit" "$logs/$name.worker.log" "$bin/worker" --ps="unix:$work/$name.sock" --data_dir="$data" "$@"
  worker=$started
  wait "$worker" || code=$?
  [ $code -eq 0 ] || kill -TERM "$server" ${watcher:+"$watcher"} 2> /dev/null
  wait "$server" || code=$((code == 0 ? $? : code))
  if [ -n "$watcher" ]; then wait "$watcher" || code=$((code == 0 ? $? : code)); fi
  return $code
}

# alone_rate BATCH: sets `alone` to the images per second of our step without a server. Measures it on the first call for
# this batch size. Returns an exit code other than 0 if that fails.
declare -A alone_rates  # batch size -> images per second
alone_rate() {
  local log=$logs/gpu_step_$1.log
  if [ -z "${alone_rates[$1]:-}" ]; then
    limited 40 "$log" "$bin/gpu_step" --gpu="$first_gpu" --networks=mobilenet_v2 --batches="$1" --classes=10 \
      --table=none --losses=0 || return
    alone_rates[$1]=$(value "$log" ours "result: ")
  fi
  alone=${alone_rates[$1]}
  [ -n "$alone" ]
}
# steps_in SECONDS BATCH: prints a sed expression for the steps that the GPU makes in SECONDS at the rate $alone, at
# least 100. With SHORTEN, batches are smaller too, and the run is three times as long: then $alone is of a few steps on a
# slow device, and a training that ends within 2 s has no rate.
steps_in() {
  local count
  count=$(awk "BEGIN { print int($alone * $1 * $shorten * ($shorten > 1 ? 3 : 1) / $2) }")
  steps $((count * shorten > 100 ? count * shorten : 100))
}
# through BATCH GRADIENTS BAR: compares the speed of one clone through ps_server with that of the GPU alone.
through() {
  local name=through_$1_$2 code=0 log together result
  log=$logs/gpu_step_$1.log
  alone_rate "$1" || code=$?
  if [ $code -eq 0 ]; then
    log=$logs/$name.worker.log
    # The rate is logged every 2 s. The run is long enough that the second half leaves out the start.
    large "$name" "$(batch "$1"); $(steps_in 10 "$1")"
    train "$name" 50 --num_clones=1 --gpus="$first_gpu" --precision=bf16 --gradient_precision="$2" || code=$?
  fi
  if [ $code -ne 0 ]; then
    row "batch $1, $2 gradients" "" "$3 of the GPU alone" "$(why $code "$log")"
    return
  fi
  together=$(figure rate "$work/$name")
  result=$(verdict "${together:-0} >= $3 * $alone")
  # Few steps on a slow device say nothing about the bar.
  if [ "$shorten" -gt 1 ] && holds "${together:-0} > 0"; then result="not judged"; fi
  row "batch $1, $2 gradients" "$together images/s of $alone" "$3 of the GPU alone" "$result"
}
end_to_end() {
  wanted end_to_end 30 || return
  through 256 bf16 0.95
}
end_to_end_more() {
  wanted end_to_end_more 60 || return
  through 256 fp32 0.95
  through 64 bf16 0.80
  through 64 fp32 0.80
}
sharing() {
  wanted sharing 40 || return
  local code=0 log=$logs/gpu_step_256.log together
  alone_rate 256 || code=$?
  if [ $code -eq 0 ]; then
    log=$logs/sharing.worker.log
    large sharing "$(batch 768); $(steps_in 12 768)"
    train sharing 60 --num_clones=3 --gpus="$gpus" --precision=bf16 || code=$?
  fi
  if [ $code -eq 0 ]; then
    together=$(figure rate "$work/sharing")
    row "3 clones on GPUs $gpus" "$together images/s of $alone" "" "$(verdict "${together:-0} > 0")"
  else
    row "3 clones on GPUs $gpus" "" "" "$(why $code "$log")"
  fi
}

# same_bits NAME FILE: trains twice and compares the checkpoints.
same_bits() {
  local name=$1 code=0 run log files=0 result=ok file checkpoint
  checkpoint=$(printf 'ckpt-%08d' $((100 / shorten)))
  for run in "$1_a" "$1_b"; do
    config "$run" "$2" "$(steps 100)"
    log=$logs/$run.worker.log
    [ $code -ne 0 ] || train "$run" 60 --num_clones=1 --gpus="$first_gpu" --precision=bf16 || code=$?
    if [ $code -ne 0 ]; then
      row "determinism, $name" "" "same bits" "$(why $code "$log")"
      return
    fi
  done
  for file in "$work/$1_a/$checkpoint"/*.safetensors; do
    files=$((files + 1))
    cmp -s "$file" "$work/$1_b/$checkpoint/${file##*/}" || result="FAIL (${file##*/} differs)"
  done
  row "determinism, $name" "two runs of $((100 / shorten)) steps, $files files" "same bits" "$result"
}
determinism() {
  wanted determinism 20 || return
  same_bits classifier mobilenet_v2_synthetic.config
}
determinism_ssd() {
  wanted determinism_ssd 20 || return
  same_bits detector ssd_shapes.config
}

# train_reference NAME: trains with three clones in fp32 on the CPU and writes the losses to $work/NAME.losses.
train_reference() {
  train "$1_cpu" "$reference_seconds" --device=cpu --num_clones=3 --threads=$((cores > 3 ? cores / 3 : 1)) &&
    figure losses "$work/$1_cpu" > "$work/$1.losses.part" && mv "$work/$1.losses.part" "$work/$1.losses"
}
# begin_reference NAME: provides the losses on the CPU in $work/NAME.losses: those of the bundle if they belong to this
# config. Otherwise it starts to compute them, in the background, and sets `reference` to the process.
begin_reference() {
  reference=""
  if cmp -s "$here/references/$1.config" "$work/$1_cpu.config"; then
    cp "$here/references/$1.losses" "$work/$1.losses"
  else
    reference_seconds=300
    background train_reference "$1"
    reference=$started
  fi
}
# curve NAME: trains with three clones in bf16 on the GPUs and an evaluator, and compares the losses with those of fp32
# on the CPU: the first 20, and more loosely the final ones. After some ten steps any two trainings go different ways. On
# the CPU, fp32 with three seeds ended with losses of 7.40, 7.98 and 8.87 for the detector. The first 20 losses differed
# by 2.6 % between seeds, and by 1.0 % between bf16 and fp32.
curve() {
  local name=$1 code=0 ours theirs early quality speed
  wanted "$name" 30 || return
  evaluator=1
  train "${name}_gpu" 100 --num_clones=3 --gpus="$gpus" --precision=bf16 || code=$?
  evaluator=0
  if [ $code -ne 0 ]; then
    row "$name, 3 clones, evaluator" "" "ends with 0" "$(why $code "$logs/${name}_gpu.worker.log")"
    return
  fi
  quality=$(grep -oE '(accuracy|mAP@0.5IOU|mAP).*' "$logs/${name}_gpu.evaluator.log" | tail -n 1)
  speed=$(figure rate "$work/${name}_gpu")
  row "$name, 3 clones, evaluator" "$speed images/s; ${quality:0:40}" "ends with 0" "$(verdict "${speed:-0} > 0")"
  # A reference that has to be computed comes after the training, which it would slow down.
  begin_reference "$name"
  while [ -n "$reference" ] && kill -0 "$reference" 2> /dev/null && [ "$(left)" -gt 5 ]; do sleep 0.2; done
  [ -z "$reference" ] || kill -TERM "$reference" 2> /dev/null
  if [ ! -f "$work/$name.losses" ]; then
    row "$name, bf16 and fp32" "" "2 %, 25 %" "skipped (the run on the CPU failed or was too slow)"
    return
  fi
  figure losses "$work/${name}_gpu" > "$logs/$name.losses"
  ours=$(figure final "$logs/$name.losses")
  theirs=$(figure final "$work/$name.losses")
  early=$(figure early "$logs/$name.losses" "$work/$name.losses")
  row "$name, bf16 and fp32" "first losses differ by ${early:-?} %, final ${ours:0:5}, CPU ${theirs:0:5}" "2 %, 25 %" \
    "$(verdict "${early:-9} <= 2 && ${ours:-0} > 0 && ${theirs:-0} > 0 && ($ours / ${theirs:-1} - 1)^2 <= 0.25^2")"
}
mobilenet() { curve mobilenet; }
ssd() { curve ssd; }
