#!/usr/bin/env bash
# Compares our declarations of cuDNN's and cuBLASLt's interfaces with NVIDIA's headers and libraries, without a GPU.
# usage: tests/reference/vendor_api_check.sh FOLDER
#   FOLDER   "nvidia" in the site-packages of a Python that has nvidia-cudnn-cu13, nvidia-cublas and
#            nvidia-cuda-runtime, as PyTorch for CUDA 13 does
# Exit code: 0 if all agrees; else the compiler or the program says what differs.
set -euo pipefail
[ $# = 1 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 64; }
nvidia=$(realpath -- "$1")
CDPATH='' cd "$(dirname "$0")/../.."
program=$(mktemp)
trap 'rm -f "$program"' EXIT
libraries=$nvidia/cudnn/lib:$nvidia/cu13/lib
g++ -std=c++20 -Wall -Wno-enum-compare -I. -I"$nvidia/cudnn/include" -I"$nvidia/cu13/include" -o "$program" tests/reference/vendor_api_check.cc \
  "$nvidia/cudnn/lib/libcudnn.so.9" "$nvidia/cu13/lib/libcublasLt.so.13" -Wl,-rpath-link,"$libraries"
LD_LIBRARY_PATH=$libraries "$program"
