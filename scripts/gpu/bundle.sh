#!/usr/bin/env bash
# Packs a folder that runs on a GPU host with nothing installed but a driver and glibc 2.36 or newer. It holds the
# programs, their shared libraries, configs, check.sh and the PyTorch side of the benchmark.
# usage: scripts/gpu/bundle.sh [--architectures=LIST] [--no-cuda] [--references] [--output=DIR] [--jobs=N]
#   --architectures=LIST  GPUs to compile for, as in PUSHPULL_CUDA_ARCHITECTURES; default 90-real (H100, H200)
#   --no-cuda             leave out the GPU backend, to try out the packing
#   --references          compute the learning curves on the CPU with which check.sh compares those of the GPU; this
#                         takes minutes. Later bundles from this build folder hold them too. DATA is as for check.sh
#   --output=DIR          folder that is replaced, and DIR.tar.gz, which holds it; default build-bundle/bundle
#   --jobs=N              number of compiler processes; default: one per core
# On the host: tar xzf bundle.tar.gz && cd bundle && ./check.sh
set -euo pipefail

limit_mb=45  # of the archive, which is what travels
architectures=90-real
cuda=ON
references=0
output=build-bundle/bundle
jobs=$(nproc)
for argument in "$@"; do
  case "$argument" in
    --architectures=*) architectures=${argument#*=} ;;
    --no-cuda) cuda=OFF ;;
    --references) references=1 ;;
    --output=*) output=$(realpath -m -- "${argument#*=}") ;;
    --jobs=*) jobs=${argument#*=} ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 64 ;;
  esac
done
CDPATH='' cd "$(dirname "$0")/../.."

programs=(ps_server worker evaluator make_records)
# These programs exist only with the GPU backend.
gpu_programs=(cuda_test gpu_step)
[ $cuda = OFF ] || programs+=("${gpu_programs[@]}")

cmake --preset gpu-bundle -DPUSHPULL_CUDA=$cuda -DPUSHPULL_CUDA_ARCHITECTURES="$architectures" > /dev/null
if [ $cuda = ON ] && ! grep -qE '^CUDAToolkit_NVCC_EXECUTABLE:.*=/' build-bundle/CMakeCache.txt; then
  echo "bundle: no CUDA toolkit found: install nvcc, or pack without the GPU backend with --no-cuda" >&2
  exit 66
fi
cmake --build build-bundle --parallel "$jobs" --target "${programs[@]}"

rm -rf "$output"
mkdir -p "$output/bin" "$output/lib" "$output/pipelines" "$output/check"
for program in "${programs[@]}"; do
  strip -o "$output/bin/$program" "build-bundle/bin/$program"
done
cp scripts/gpu/check.sh scripts/gpu/references.sh scripts/bench/gpu_step_torch.py scripts/bench/gpu_step_networks.py "$output/"
cp scripts/gpu/check/* scripts/plot_events.py "$output/check/"
cp deploy/pipelines/*.config scripts/gpu/pipelines/*.config "$output/pipelines/"

# Copies the libraries of the programs, except glibc's, which the host provides.
ldd "$output"/bin/* | sed -nE 's/^[[:space:]]*([^ ]+) => (\/[^ ]+).*/\1 \2/p' | sort -u |
  while read -r name path; do
    case "$name" in
      libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libresolv.so.*) ;;
      *) install -m 644 "$path" "$output/lib/$name" ;;
    esac
  done

if [ $references = 1 ]; then
  "$output/references.sh"
  rm -rf build-bundle/references
  cp -r "$output/references" build-bundle/references
elif [ -d build-bundle/references ]; then
  cp -r build-bundle/references "$output/references"
fi

echo
echo "bundle: $output"
(cd "$output" && find . -type f -printf '%s %P\n' | sort -k2 |
  awk '{ printf "  %10.2f MB  %s\n", $1 / 1e6, $2; total += $1 } END { printf "  %10.2f MB  in all\n", total / 1e6 }')
newest=$(cat "$output"/bin/* "$output"/lib/* | grep -aoE 'GLIBC_2\.[0-9]+' | sort -Vu | tail -n 1)
echo "  needs ${newest/_/ } or newer"
tar -C "$(dirname "$output")" -czf "$output.tar.gz" "$(basename "$output")"
bytes=$(stat -c %s "$output.tar.gz")
echo "  $(awk "BEGIN { printf \"%.2f\", $bytes / 1e6 }") MB  $output.tar.gz"
if [ "$bytes" -gt $((limit_mb * 1000000)) ]; then
  echo "bundle: $output.tar.gz has $bytes bytes, more than $limit_mb MB" >&2
  exit 1
fi

# Checks that every program starts, with an empty environment.
for program in "${programs[@]}"; do
  if env -i "$output/bin/$program" --version > /dev/null 2>&1; then continue; fi
  # Test programs do not have --version.
  env -i "$output/bin/$program" --gtest_list_tests > /dev/null || {
    echo "bundle: $output/bin/$program does not start" >&2
    exit 70
  }
done
