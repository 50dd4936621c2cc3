#!/usr/bin/env bash
# Checks format, file sizes, the width of documents, layers, retired words, lists in comments, that each source has a
# test, and shell scripts; runs clang-tidy. Installs the packages that are missing first.
# usage: scripts/lint.sh [--changed] [--no-tidy]
#   --changed   run clang-tidy only on sources that differ from the main branch, and with the static analyzer too
#   --no-tidy   leave out clang-tidy; this takes seconds instead of minutes
set -uo pipefail

changed=0
tidy=1
for argument in "$@"; do
  case "$argument" in
    --changed) changed=1 ;;
    --no-tidy) tidy=0 ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 64 ;;
  esac
done
CDPATH='' cd "$(dirname "$0")/.." || exit 1
scripts/setup.sh || exit 1

failures=0
fail() {
  echo "lint: $1"
  failures=$((failures + 1))
}

mapfile -t sources < <(git ls-files -- '*.h' '*.cc' '*.cu' '*.cuh')
mapfile -t scripts < <({ git ls-files -- '*.sh'; git grep -lE '^#!.*(bash|sh)$'; } | sort -u)

printf '%s\n' "${sources[@]}" | xargs -n 40 -P "$(nproc)" clang-format-14 --dry-run -Werror ||
  fail "format: run clang-format-14 -i on the files above"

for file in "${sources[@]}"; do
  case "$file" in
    tests/*) limit=600 ;;
    *.h | *.cuh) limit=250 ;;
    *) limit=450 ;;
  esac
  lines=$(wc -l < "$file")
  [ "$lines" -le "$limit" ] || fail "$file has $lines lines, the limit is $limit: split it by meaning"
done

# Tables, code and lines with a URL cannot be wrapped.
long=$(git ls-files -z -- '*.md' | LC_ALL=C.UTF-8 xargs -0 grep -nE '^.{121,}' |
  grep -vE '^[^:]+:[0-9]+:(\||    |.*https?://)' | cut -d: -f1,2)
[ -z "$long" ] || fail "these lines of documents have more than 120 characters:"$'\n'"$long"

scripts/check_layers.sh || fail "layer rule broken, see above"
scripts/check_tests.sh || fail "sources without tests, see above"
scripts/check_words.sh || fail "retired words, see above"
scripts/check_comments.sh || fail "lists in comments that were reflowed, see above"
shellcheck "${scripts[@]}" || fail "shellcheck, see above"
# An exported CDPATH would lead `cd` into another folder of the same name.
# shellcheck disable=SC2016  # the expression is not the shell's
! grep -nE '(^|[ (])cd "\$(\(dirname|root)' "${scripts[@]}" | grep -v "CDPATH='' cd" ||
  fail "write CDPATH='' before these commands"

if [ $tidy = 1 ]; then
  checks=""
  if [ $changed = 1 ]; then
    # The dev preset compiles each file by itself, so a missing include is an error here.
    preset=dev build=build-dev
    checks='clang-analyzer-core.*,clang-analyzer-cplusplus.*,-clang-analyzer-cplusplus.NewDeleteLeaks'
    mapfile -t wanted < <(git diff --name-only --diff-filter=d "$(git merge-base HEAD main)" -- '*.cc')
  else
    # The release preset compiles several files as one: most of the time goes into headers, which are then read once. Of
    # the checks, only misc-unused-using-decls does not look into files that are compiled this way; --changed has it.
    preset=release build=build
    mapfile -t wanted < <(git ls-files -- 'common/*.cc' 'kernels/*.cc' 'ps_server/*.cc' 'worker/*.cc' 'scripts/*.cc')
  fi
  cmake --preset $preset > /dev/null || exit 1
  # clang-tidy needs the generated headers and no other build outputs.
  cmake --build $build --target pushpull_protos pushpull_protos_grpc || exit 1

  # Which unit of the build compiles each file, as lines "FILE UNIT".
  compiled=$(sed -n "s|^ *\"file\": \"$PWD/\(.*\)\",*\$|\1|p" $build/compile_commands.json | sort -u | while read -r unit; do
    case "$unit" in
      */Unity/*.cxx) sed -n "s|^#include \"$PWD/\(.*\)\"|\1 $unit|p" "$unit" ;;
      *) echo "$unit $unit" ;;
    esac
  done)
  units=()
  for file in "${wanted[@]}"; do
    mapfile -t found < <(sed -n "s|^$file ||p" <<< "$compiled")
    # Without a CUDA toolkit a few files are not built, and clang-tidy could not find their headers.
    [ ${#found[@]} -gt 0 ] || echo "lint: $file is not built on this machine, so clang-tidy leaves it out"
    units+=("${found[@]}")
  done
  if [ ${#units[@]} -gt 0 ]; then
    mapfile -t units < <(printf '%s\n' "${units[@]}" | sort -u)
    echo "lint: clang-tidy over ${#wanted[@]} files in ${#units[@]} units"
    printf '%s\n' "${units[@]}" | xargs -n 1 -P "$(nproc)" \
      clang-tidy-14 -p $build --quiet --extra-arg=-Wthread-safety --checks="$checks" 2> /dev/null ||
      fail "clang-tidy, see above"
  fi
fi

if [ $failures -gt 0 ]; then
  echo "lint: $failures failures"
  exit 1
fi
echo "lint: ok"
