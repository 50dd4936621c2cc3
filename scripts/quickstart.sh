#!/usr/bin/env bash
# Installs the packages, builds the programs, and trains a small classifier on this machine with one ps_server, one
# worker of three clones and one evaluator. Prints the accuracy and the paths of the event files.
# usage: scripts/quickstart.sh [--data=DIR] [--steps=N] [--out=DIR]
#   --data=DIR   train on the MNIST files (train-images-idx3-ubyte.gz, ...) in DIR; default: on drawn shapes
#   --steps=N    number of training steps; default: the number in the pipeline config
#   --out=DIR    folder for checkpoints, event files and logs; default: a new folder under build/quickstart
set -euo pipefail

data=""
steps=""
out=""
for argument in "$@"; do
  case "$argument" in
    --data=*) data=${argument#*=}; [ -z "$data" ] || data=$(realpath -m -- "$data") ;;
    --steps=*) steps=${argument#*=} ;;
    --out=*) out=${argument#*=}; [ -z "$out" ] || out=$(realpath -m -- "$out") ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 64 ;;
  esac
done
CDPATH='' cd "$(dirname "$0")/.."
if [ -n "$steps" ] && ! [[ "$steps" =~ ^[1-9][0-9]*$ ]]; then
  echo "quickstart: --steps: expected a number of at least 1, got \"$steps\"" >&2
  exit 64
fi
config=deploy/pipelines/mobilenet_v2_synthetic.config
if [ -n "$data" ]; then
  config=deploy/pipelines/mobilenet_v2_mnist.config
  for file in train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz t10k-images-idx3-ubyte.gz t10k-labels-idx1-ubyte.gz; do
    if [ ! -f "$data/$file" ]; then
      echo "quickstart: --data: expected $data/$file, which does not exist" >&2
      exit 66
    fi
  done
fi

scripts/setup.sh --build-only
cmake -S . -B build -G Ninja > /dev/null
cmake --build build --target ps_server worker evaluator

[ -n "$out" ] || out=build/quickstart/$(date +%Y%m%d-%H%M%S)
mkdir -p "$out"
# Not under $out, because the path of a socket may have at most about 100 bytes.
sockets=$(mktemp -d)
pids=()

# Ends all processes that the script has started, however the script ends.
cleanup() {
  local pid
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2> /dev/null || true; done
  for _ in $(seq 100); do
    local alive=0
    for pid in "${pids[@]}"; do kill -0 "$pid" 2> /dev/null && alive=1; done
    [ $alive = 0 ] && break
    sleep 0.2
  done
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2> /dev/null || true; done
  rm -rf "$sockets"
}
trap cleanup EXIT
trap 'exit 143' INT TERM

if [ -n "$steps" ]; then
  # Scales the learning rate schedule with the number of steps.
  warmup=$((steps / 12))
  sed -E "s/(num_steps|total_steps): [0-9]+/\1: $steps/; s/warmup_steps: [0-9]+/warmup_steps: $warmup/" \
    "$config" > "$out/job.config"
else
  cp "$config" "$out/job.config"
fi

# finish NAME PID: waits for the process. If it failed, shows the end of its log and exits with the same exit code.
finish() {
  local code=0
  wait "$2" || code=$?
  if [ $code -ne 0 ]; then
    echo "quickstart: $1 ended with exit code $code" >&2
    # The worker has no log, because its messages went to the terminal.
    if [ -f "$out/$1.log" ]; then
      echo "quickstart: the end of $out/$1.log:" >&2
      tail -n 20 "$out/$1.log" >&2
    fi
    exit $code
  fi
}

address=unix:$sockets/ps
started=$SECONDS
echo "quickstart: training; output in $out"
build/bin/ps_server --tasks=1 --pipeline_config_path="$out/job.config" --train_dir="$out/train" \
  --listen="$address" > "$out/ps_server.log" 2>&1 &
server=$!
pids+=("$server")
build/bin/evaluator --checkpoint_dir="$out/train" --pipeline_config_path="$out/job.config" --data_dir="$data" \
  --threads=1 > "$out/evaluator.log" 2>&1 &
evaluator=$!
pids+=("$evaluator")
build/bin/worker --num_clones=3 --device=cpu --ps="$address" --data_dir="$data" &
worker=$!
pids+=("$worker")

# If the server has failed, report that first: the worker would wait for it until its own deadline.
wait -n "$server" "$worker" || true
kill -0 "$server" 2> /dev/null || finish ps_server "$server"
finish worker "$worker"
finish ps_server "$server"
trained=$((SECONDS - started))
finish evaluator "$evaluator"
pids=()

result=$(build/bin/evaluator --run_once --checkpoint_dir="$out/train" --pipeline_config_path="$out/job.config" \
  --data_dir="$data" --eval_dir="$out/final" 2>> "$out/evaluator.log")
echo
echo "quickstart: trained in $trained s; final evaluation: $result"
echo "quickstart: event files (TensorBoard: tensorboard --logdir $out/train):"
find "$out/train" -name '*tfevents*' | sort | sed 's/^/  /'
for python in python3 /usr/bin/python3; do
  if "$python" -c 'import matplotlib' 2> /dev/null; then
    "$python" scripts/plot_events.py "$out/train" --output="$out/learning_curve.png"
    break
  fi
done
