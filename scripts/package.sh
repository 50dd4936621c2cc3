#!/usr/bin/env bash
# Builds the packages in which Pushpull is installed. They hold the programs for the CPU and the client library.
# usage: scripts/package.sh [--only=NAME,...] [--output=DIR] [--jobs=N]
#   --only=NAME,...  some of wheel, deb, tarball, context; default: all
#   --output=DIR     where the packages are put; default build-package/packages
#   --jobs=N         number of compiler processes; default: one per core
# wheel    Python package with the programs and all shared libraries but glibc's; needs Python's pip, setuptools and
#          wheel 0.40 or newer
# deb      Debian package, which depends on the packages of the shared libraries
# tarball  the programs with the same libraries as the wheel, to be unpacked anywhere
# context  the sources of the last commit, from which `docker build -f deploy/Dockerfile` makes an image
set -euo pipefail

chosen=wheel,deb,tarball,context
output=build-package/packages
jobs=$(nproc)
for argument in "$@"; do
  case "$argument" in
    --only=*) chosen=${argument#*=} ;;
    --output=*) output=$(realpath -m -- "${argument#*=}") ;;
    --jobs=*) jobs=${argument#*=} ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 64 ;;
  esac
done
CDPATH='' cd "$(dirname "$0")/.."
umask 022  # what is packed must be readable for everybody, whatever is usual for this user
IFS=, read -ra names <<< "$chosen"
for name in "${names[@]}"; do
  case "$name" in
    wheel | deb | tarball | context) ;;
    *) echo "package: --only=$name, expected wheel, deb, tarball or context" >&2; exit 64 ;;
  esac
done
wanted() { [[ ",$chosen," == *",$1,"* ]]; }

mkdir -p "$output"
output=$(realpath "$output")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -nE 's/^project\(pushpull VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
python=${PYTHON:-python3}
if wanted wheel && ! { "$python" -c 'import pip, setuptools' && "$python" -m wheel tags --help; } > /dev/null 2>&1; then
  echo "package: $python has no pip, setuptools and wheel 0.40 or newer (Debian 12's wheel is older): install them" \
    "into a virtual environment and set PYTHON to its python" >&2
  exit 66
fi
for tool in file dpkg-shlibdeps; do
  if wanted deb && ! command -v "$tool" > /dev/null; then
    echo "package: there is no $tool: apt-get install file dpkg-dev" >&2
    exit 66
  fi
done

if wanted context; then
  git archive --format=tar.gz --prefix="pushpull-$version/" -o "$output/pushpull-$version-context.tar.gz" HEAD
  [ "$chosen" != context ] || exit 0
fi

cmake --preset package > /dev/null
cmake --build build-package --parallel "$jobs"
stage=$work/pushpull-$version
cmake --install build-package --prefix "$stage" --strip > /dev/null

if wanted wheel || wanted tarball; then
  # Copies the shared libraries of the programs and of the client library, except those of glibc and of the compiler,
  # which every host has and which a process must not load twice.
  ldd "$stage"/bin/* "$stage"/lib/*.so | sed -nE 's/^[[:space:]]*([^ ]+) => (\/[^ ]+).*/\1 \2/p' | sort -u |
    while read -r name path; do
      case "$name" in
        libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libresolv.so.*) ;;
        libstdc++.so.* | libgcc_s.so.*) ;;
        *) [ -e "$stage/lib/$name" ] || install -m 644 -D "$path" "$stage/lib/$name" ;;
      esac
    done
  glibc=$(cat "$stage"/bin/* "$stage"/lib/* | grep -aoE 'GLIBC_2\.[0-9]+' | sort -Vu | tail -n 1)
fi
if wanted tarball; then
  tar -C "$work" -czf "$output/pushpull-$version-linux-$(uname -m).tar.gz" "pushpull-$version"
fi
if wanted wheel; then
  cp -r python "$work/python"
  cp -r "$stage" "$work/python/pushpull/_native"
  (cd "$work/python" && "$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/wheel" .)
  # The package has no code for one version of Python, but it has machine code for one platform.
  platform=manylinux_${glibc#GLIBC_}_$(uname -m)
  "$python" -m wheel tags --remove --python-tag py3 --abi-tag none --platform-tag "${platform/./_}" \
    "$work"/wheel/*.whl > /dev/null
  cp "$work"/wheel/*.whl "$output/"
fi
if wanted deb; then
  (cd build-package && cpack -G DEB -B "$work/deb" > "$work/cpack.log") || { cat "$work/cpack.log" >&2; exit 70; }
  cp "$work"/deb/*.deb "$output/"
fi
find "$output" -type f -printf '%s %f\n' | sort -k2 | awk '{ printf "package: %6.1f MB  %s\n", $1 / 1e6, $2 }'
