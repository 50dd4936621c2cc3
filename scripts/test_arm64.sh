#!/bin/bash
# scripts/test_arm64.sh [GTEST_FILTER]: builds the programs and tests for 64-bit ARM, runs the unit tests in an emulator
# (qemu-user), trains a few steps with the programs, and compares the variables with those that the programs of this
# machine make, if they are in build/bin. Takes more than an hour on two cores. Installs the cross compiler and the
# emulator; ARM's libraries go into build-arm64/sysroot, so the system's own packages stay as they are. rpc_test
# is left out: the limits on connections read TCP_INFO, which the emulator does not give.
set -euo pipefail
CDPATH='' cd "$(dirname "$0")/.."
if [[ ${1:-} == -* ]]; then
  sed -n '2,6s/^# \{0,1\}//p' "$0"
  exit 64
fi
build="build-arm64"
sysroot=$PWD/$build/sysroot
filter=${1:-*}

for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  if ! command -v $program > /dev/null; then
    apt-get install -y --no-install-recommends g++-aarch64-linux-gnu qemu-user
  fi
done

if [[ ! -e $sysroot/complete ]]; then
  apt=$PWD/$build/apt
  rm -rf "$sysroot" "$apt"
  mkdir -p "$sysroot" "$apt"/{state/lists/partial,cache/archives/partial}
  touch "$apt/status"
  # apt with a state of its own, in which no package is installed, so that it downloads all that these need.
  options=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$apt/state"
           -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User=)
  apt-get "${options[@]}" update
  apt-get "${options[@]}" install -y --no-install-recommends --download-only \
    libabsl-dev libc6-dev libgmock-dev libgoogle-glog-dev libgrpc++-dev libgtest-dev libhwy-dev libjpeg62-turbo-dev \
    libmicrohttpd-dev libpng-dev libprotobuf-dev libpugixml-dev libssl-dev libstb-dev libstdc++-12-dev \
    nlohmann-json3-dev prometheus-cpp-dev protobuf-compiler-grpc zlib1g-dev
  for package in "$apt"/cache/archives/*.deb; do dpkg -x "$package" "$sysroot"; done
  rm -rf "$apt"
  touch "$sysroot/complete"
fi

cmake -S . -B $build -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/arm64_toolchain.cmake -DPUSHPULL_ARM64_SYSROOT="$sysroot" \
  -DPUSHPULL_CUDA=OFF -DPUSHPULL_BENCHMARKS=OFF
programs=(ps_server worker evaluator)
tests=(optimizer_test kernels_test common_test ps_core_test ps_runtime_test client_test)
ninja -C $build "${programs[@]}" "${tests[@]}"
for test in "${tests[@]}"; do
  echo "$test"
  qemu-aarch64 -L "$sysroot" "$build/bin/$test" --gtest_brief=1 --gtest_filter="$filter"
done

export QEMU_LD_PREFIX=$sysroot
if ! $build/bin/ps_server --version 2> /dev/null; then
  echo "ARM64: the unit tests passed. Nothing was trained: a worker starts its clones itself, so the kernel must know" \
    "that ARM's programs need the emulator (package qemu-user-binfmt)"
  exit 0
fi
job=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null || true; rm -rf "$job"' EXIT
sed -E 's/(num_steps|total_steps): [0-9]+/\1: 5/; s/warmup_steps: [0-9]+/warmup_steps: 1/' \
  deploy/pipelines/mobilenet_v2_synthetic.config > "$job/job.config"
# train SERVER WORKER: trains in the folder $job/SERVER-WORKER by programs of these build folders.
train() {
  "$1/bin/ps_server" --pipeline_config_path="$job/job.config" --train_dir="$job/$1-$2" --listen="unix:$job/socket" &
  "$2/bin/worker" --ps="unix:$job/socket" --num_clones=2 --threads=1
  wait $!
}
train $build $build
$build/bin/evaluator --run_once --checkpoint_dir="$job/$build-$build"
if [[ -x build/bin/worker ]]; then
  train $build build
  train build build
  # Server and clones compute the same bits on both processors, if this one has AVX2.
  for other in $build-$build $build-build; do
    cmp "$job"/{build-build,"$other"}/ckpt-00000005/shard-00000-of-00001.safetensors
  done
fi
echo "ARM64: ok"
