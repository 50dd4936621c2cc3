#!/usr/bin/env bash
# Measures and checks all that needs a GPU, within 9 minutes, in the folder that bundle.sh packs. What is worth most
# comes first, and each row of the table is written as it comes, so that a run that is cut off leaves what it found.
# usage: ./check.sh [--only=NAME,...] [--gpus=LIST] [--seconds=N]
#   --only=NAME,...  some of the checks below, in their order
#   --gpus=LIST      GPUs of the three clones; default: the first three; if there are fewer, clones share them
#   --seconds=N      time for everything; a check that no longer fits is skipped; default 530
# The checks, in this order; the second group is for a second run with --only, or for the time that is left:
#   step operators profile benchmark libraries memcheck racecheck end_to_end determinism benchmark_ssd
#   mobilenet ssd bad_cases sharing end_to_end_more determinism_ssd
# Environment: DATA, a folder with MNIST's four IDX files (default ./mnist; if missing, drawn shapes); OUT, a folder for
# the table (check.txt) and the logs; PYTHON, with PyTorch (default python3); SANITIZER_FILTER, the tests under
# compute-sanitizer; HANG_S, how many seconds a test may be silent before it is ended (default 20); CUDA_VISIBLE_DEVICES,
# whose indices count in the order of nvidia-smi. To try out the script where there is no GPU: SHORTEN, a divisor of the
# numbers of steps, of images and of batch sizes, with which shares of the GPU's rate are not judged; and PATIENCE, a
# factor of the time limits of single checks (default 1).
# Exit code: 0 if no check failed; 1 if one failed; 69 if there is no GPU.
set -uo pipefail
here=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=SCRIPTDIR/check/report.sh
. "$here/check/report.sh"
# shellcheck source=SCRIPTDIR/check/gpus.sh
. "$here/check/gpus.sh"
# shellcheck source=SCRIPTDIR/check/kernels.sh
. "$here/check/kernels.sh"
# shellcheck source=SCRIPTDIR/check/pytorch.sh
. "$here/check/pytorch.sh"
# shellcheck source=SCRIPTDIR/check/training.sh
. "$here/check/training.sh"
# shellcheck source=SCRIPTDIR/check/bad_cases.sh
. "$here/check/bad_cases.sh"

# Each check is a function of this name.
checks=(step operators profile benchmark libraries memcheck racecheck end_to_end determinism benchmark_ssd
        mobilenet ssd bad_cases sharing end_to_end_more determinism_ssd)
requested=""
gpus=""
limit=530
for argument in "$@"; do
  case "$argument" in
    --only=*) requested=${argument#*=} ;;
    --gpus=*) gpus=${argument#*=} ;;
    --seconds=*) limit=${argument#*=} ;;
    *) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 64 ;;
  esac
done
for name in ${requested//,/ }; do
  [[ " ${checks[*]} " == *" $name "* ]] || { echo "check: no check is called $name: ${checks[*]}" >&2; exit 64; }
done
export CUDA_DEVICE_ORDER=PCI_BUS_ID
mapfile -t visible < <(visible_gpus)
if [ ${#visible[@]} -eq 0 ]; then
  echo "check: no GPU: nvidia-smi lists none${CUDA_VISIBLE_DEVICES+ of CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES}" >&2
  exit 69
fi
for program in ps_server worker evaluator cuda_test gpu_step; do
  [ -x "$here/bin/$program" ] || { echo "check: no $here/bin/$program: pack it with scripts/gpu/bundle.sh" >&2; exit 66; }
done
if [ -z "$gpus" ]; then
  for ((k = 0; k < 3; ++k)); do gpus+=${gpus:+,}$((k % ${#visible[@]})); done
fi
first_gpu=${gpus%%,*}
hang_s=${HANG_S:-20}

begin_report "$limit" "$requested"
begin_training
for gpu in "${visible[@]}"; do
  nvidia-smi --id="$gpu" --query-gpu=index,name,driver_version,memory.total,temperature.gpu --format=csv,noheader
done | tee "$results"
line check figure bar result
echo "three clones on GPUs $gpus, $cores cores, data: $data_name"
echo
for name in "${checks[@]}"; do "$name"; done

echo "$failures failed, $((SECONDS - begun)) s" >> "$results"
echo
cat "$results"
[ $failures -eq 0 ]
