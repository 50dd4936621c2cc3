#!/usr/bin/env bash
# Installs the Debian 12 packages that building, testing and linting need. Installed packages are left as they are.
# usage: scripts/setup.sh [--build-only]     --build-only leaves out what only benchmarks, tests, lint and plots need
set -euo pipefail

build_packages=(
  cmake ninja-build g++ ccache mold pkg-config git
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  libgoogle-glog-dev libgflags-dev libgtest-dev libgmock-dev
  libre2-dev libc-ares-dev nlohmann-json3-dev libssl-dev zlib1g-dev
  libjpeg62-turbo-dev libpng-dev libstb-dev libpugixml-dev libhwy-dev libmicrohttpd-dev prometheus-cpp-dev
)
other_packages=(
  libzmq3-dev clang-format-14 clang-tidy-14 shellcheck openssl
  python3-minimal python3-yaml python3-matplotlib python3-numpy python3-prometheus-client
)

packages=("${build_packages[@]}" "${other_packages[@]}")
case "${1:-}" in
  "") ;;
  --build-only) packages=("${build_packages[@]}") ;;
  *) sed -n '2,3s/^# //p' "$0"; exit 64 ;;
esac

if ! command -v apt-get > /dev/null; then
  echo "setup: no apt-get here; install the equivalents of these Debian 12 packages: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  if [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || true)" != installed ]; then
    missing+=("$package")
  fi
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo > /dev/null; then
    echo "setup: run as root, or install sudo; missing packages: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup: installing ${#missing[@]} of ${#packages[@]} packages: ${missing[*]}"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
echo "setup: done"
