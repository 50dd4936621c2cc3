#!/bin/bash
# scripts/test_arm64.sh [GTEST_FILTER]: builds the CPU kernels, the optimizers and their tests for 64-bit ARM and runs the
# tests in an emulator (qemu-user), which takes most of an hour on two cores. Installs the cross compiler and the
# emulator; ARM's libraries go into build-arm64/sysroot, so the system's own packages stay as they are.
set -euo pipefail
CDPATH='' cd "$(dirname "$0")/.."
if [[ ${1:-} == -* ]]; then
  sed -n '2,4s/^# \{0,1\}//p' "$0"
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
    libabsl-dev libc6-dev libgmock-dev libgoogle-glog-dev libgtest-dev libhwy-dev libprotobuf-dev libssl-dev \
    libstdc++-12-dev nlohmann-json3-dev zlib1g-dev
  for package in "$apt"/cache/archives/*.deb; do dpkg -x "$package" "$sysroot"; done
  rm -rf "$apt"
  touch "$sysroot/complete"
fi

cmake -S . -B $build -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/arm64_toolchain.cmake -DPUSHPULL_ARM64_SYSROOT="$sysroot" \
  -DPUSHPULL_RPC=OFF -DPUSHPULL_CUDA=OFF -DPUSHPULL_BENCHMARKS=OFF
tests=(optimizer_test kernels_test)
ninja -C $build "${tests[@]}"
for test in "${tests[@]}"; do
  echo "$test"
  qemu-aarch64 -L "$sysroot" "$build/bin/$test" --gtest_brief=1 --gtest_filter="$filter"
done
echo "ARM64: ok"
